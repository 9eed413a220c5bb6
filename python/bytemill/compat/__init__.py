"""bytemill behind the interfaces of other libraries."""
