package sim

// Stream numbers of the random generators, so that an addition to a scenario does not change other random draws.
const (
	seedZone = iota + 1
	seedWorkers
	seedGateways
	seedWAN
	seedStarts
)
