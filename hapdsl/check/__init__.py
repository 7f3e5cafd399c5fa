"""Is a program right? Proven line by line; and programs back into text."""
