// Package queue decides who waits, who enters and who is refused: one bounded queue for each model, classes by weight
// with aging, tenants in turn inside a class, first come first served inside a tenant.
//
// It never chooses a worker (a request is bound to one only when one has room, and the caller says whether there is),
// never reads a clock, starts no goroutine and holds no lock: one writer owns a Queue.
package queue
