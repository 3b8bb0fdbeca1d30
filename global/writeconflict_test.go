package global

import (
	"errors"
	"testing"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
)

// TestConflictingWriteIsRetriedOnce: a write by a node that lagged behind is repeated once from the agreed state. A
// write that names its version is not, nor one with a second conflict.
func TestConflictingWriteIsRetriedOnce(t *testing.T) {
	agreed, follower := uint64(5), uint64(4)
	tries, caught := 0, 0
	write := func() error {
		if tries++; follower != agreed {
			return consensus.ErrConflict{Current: agreed}
		}
		return nil
	}
	catchUp := func() error { caught++; follower = agreed; return nil }
	if err := retryAfterConflict(0, write, catchUp); err != nil || tries != 2 || caught != 1 {
		t.Errorf("a lagging follower: %v after %d tries", err, tries)
	}
	follower, tries = 4, 0
	if err := retryAfterConflict(4, write, catchUp); !errors.As(err, new(consensus.ErrConflict)) || tries != 1 {
		t.Errorf("based on version 4: %v after %d tries", err, tries)
	}
	follower, tries = 4, 0
	if err := retryAfterConflict(0, write, func() error { return nil }); !errors.As(err, new(consensus.ErrConflict)) || tries != 2 {
		t.Errorf("a second conflict: %v after %d tries", err, tries)
	}
	follower, tries = 4, 0
	if err := retryAfterConflict(0, write, func() error { return consensus.ErrNoLeader }); !errors.Is(err, consensus.ErrNoLeader) || tries != 1 {
		t.Errorf("no leader: %v after %d tries", err, tries)
	}
}

// TestUnknownOutcomeReachesTheOperator: an unknown outcome of a write is reported to the operator's command.
func TestUnknownOutcomeReachesTheOperator(t *testing.T) {
	var e *admin.Error
	if err := toAdminError(consensus.ErrUnknownOutcome); !errors.As(err, &e) || !e.Unknown || e.Status != 503 {
		t.Errorf("%+v", err)
	}
	if err := toAdminError(consensus.ErrNoLeader); !errors.As(err, &e) || e.Unknown {
		t.Errorf("%+v", err)
	}
}
