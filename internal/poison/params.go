package poison

import "time"

const (
	// DeathRetention is how long a death counts against a request. A longer time refuses a harmless request for
	// longer after two workers happened to die under it; a shorter one gives a client that repeats a harmful
	// request another worker each time.
	DeathRetention = 10 * time.Minute
	// MaxEntries bounds the recorded requests, about 100 bytes each. The oldest is dropped first.
	MaxEntries = 4096
	// MinSharedRequests is the number of concurrent requests at a worker from which on its death makes none of
	// them suspect: a worker that dies under unrelated requests died for another reason.
	MinSharedRequests = 3
)
