"""The model beside the real databases: the same interleavings must end alike."""
