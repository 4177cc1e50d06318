"""The argument ``compression`` of users: compressors, formats, and rules that choose between them."""
