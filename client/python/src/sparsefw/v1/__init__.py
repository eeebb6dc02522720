"""The messages and raw stubs of the gRPC API; made by client/python/generate-stubs."""
