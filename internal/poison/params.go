package poison

import "time"

const (
	// Keep is how long a death counts against a request. Longer refuses a harmless request for longer after two workers
	// happened to die under it; shorter gives a client that repeats a request another worker each time.
	Keep = 10 * time.Minute
	// MaxEntries bounds the requests that are remembered, about 100 bytes each. The oldest goes first.
	MaxEntries = 4096
	// Crowd is how many requests must have been at a worker when it died for none of them to be suspected for that: a worker
	// that dies under unrelated requests died for reasons of its own.
	Crowd = 3
)
