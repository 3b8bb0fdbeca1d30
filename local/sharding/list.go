package sharding

import (
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// AssignmentInterval is how often an instance assigns the zone's workers to its instances.
const AssignmentInterval = 250 * time.Millisecond

// ComputeListVersion hashes a list of workers, so that an unchanged list is not sent again. The result is not 0.
func ComputeListVersion(workers []string) uint64 {
	return max(1, xxhash.Sum64String(strings.Join(workers, "\n")))
}
