package health

import "time"

const (
	// tenantWindow is how long an error answer to one tenant corroborates those to another; it equals the window of
	// the error rate. Longer lets unrelated mistakes of two tenants eject; shorter verifies workers with little
	// traffic more often.
	tenantWindow = 30 * time.Second
	// verifyEvery is the minimum time between two verifications of a worker that takes requests. Shorter costs more
	// tokens while a tenant's requests fail; longer finds a worker later that breaks just after it passed.
	verifyEvery = 5 * time.Second
)
