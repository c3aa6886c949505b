"""What crosses the wire: bodies decoded to typed values, values encoded as the peer shapes them."""
