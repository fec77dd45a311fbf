"""Jobs as people define them, and what people do to them."""
