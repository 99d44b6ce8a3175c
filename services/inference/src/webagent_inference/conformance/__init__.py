"""Does a service keep the contract of inference? Promises, held against a running one by its gRPC face alone."""
