"""The argument ``compression``: compressors, formats, and rules that choose between them."""
