"""The formats of Kubernetes values (durations, quantities, JSON), the API server's clock, and a token bucket."""
