"""What requests to the identity routes must look like."""
