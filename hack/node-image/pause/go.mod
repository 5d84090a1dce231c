module punctual.dev/hack/pause

go 1.25.0
