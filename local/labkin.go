package local

import (
	"time"

	"github.com/spillway-lb/spillway/local/owner"
)

// DivideEvery is how often Divide is called where a zone has several instances.
const DivideEvery = divideEvery

// Reached is what an instance tells its siblings: the workers that have answered a probe, and the number of that list.
func (l *Lab) Reached() (version uint64, workers []string) {
	workers = l.floor.reached()
	return versionOf(workers), workers
}

// Divide puts a division of the zone's workers among its instances in force.
func (l *Lab) Divide(d *owner.Division, now time.Time) (gained, lost int) {
	return l.floor.divide(d, func(string) bool { return false }, now)
}

// Quit takes a visit back that waits and whose client has left.
func (l *Lab) Quit(v *LabVisit, now time.Time) {
	if v.visit.item.Waiting() {
		l.floor.leave(&v.visit, nil, now)
	}
}
