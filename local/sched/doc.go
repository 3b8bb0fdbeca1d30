// Package sched decides for one zone which worker serves which request, and when. It is the part of the local tier that
// the simulator runs too: it takes the time as an argument, does no I/O, starts nothing, and is not safe for concurrent
// use.
//
// Its caller reports events to a Scheduler: a request arrives, a worker was chosen and the first byte came, an answer
// ended, a worker was scraped, time has passed. Each call returns the decision about its subject. What a call decides
// about others is kept until the caller takes it: requests whose wait in the queue has ended (TakeSettled) and whether
// load actions must be planned (TakePlacementChanged). The caller does the I/O behind three small interfaces: Backend of
// a worker, Exchange of an attempt, and the owner of a request.
//
// The collaborators share the state of the zone (zoneState) and have one subject each:
//
//	admission      places requests on workers, queues them or refuses them
//	WorkerRegistry adds and removes workers and builds the views of their models
//	HealthChecker  decides which workers take requests
//	learner        learns the speed of workers and the length of outputs
//	CacheTracker   keeps the prefix index in line with cache events
//	ModelLoader    decides which models are loaded
//	autoscaling    computes how many replicas each model needs
//	DeathTracker   remembers under which requests workers died
//	RetryLimiter   decides whether a failed request may go to another worker
//	reporter       describes the zone: summary, status, explanations
package sched
