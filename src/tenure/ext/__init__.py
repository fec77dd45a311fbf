"""tenure inside the programs that people have: one module for each, which is imported only by those who have it."""
