package global

import (
	"context"
	"fmt"

	"github.com/spillway-lb/spillway/internal/admin"
)

// readAgreedSpec returns the spec with every write that completed on any node before the call. This node's answers
// may follow a moment later.
func (s *specAdmin) readAgreedSpec(ctx context.Context) (*admin.SpecAnswer, error) {
	st, err := s.node.ReadLinearizable(ctx)
	if err != nil {
		return nil, toAdminError(err)
	}
	if st.SpecVersion == 0 {
		return nil, admin.UnavailableError("no spec is committed yet", "spillway apply -f spec.yaml")
	}
	return &admin.SpecAnswer{Version: st.SpecVersion, Text: string(st.Spec)}, nil
}

// readAgreedDrains returns the drains with the same guarantee.
func (s *drainAdmin) readAgreedDrains(ctx context.Context) (*admin.DrainAnswer, error) {
	st, err := s.node.ReadLinearizable(ctx)
	if err != nil {
		return nil, toAdminError(err)
	}
	return &admin.DrainAnswer{Drains: toAdminDrains(st.Drains)}, nil
}

// resolveBaseVersion returns the spec version that an apply replaces, or a conflict with the version that it is based
// on. Versions only grow: a version greater than this node's comes from a node that is ahead, and the leader resolves
// it.
func (s *specAdmin) resolveBaseVersion(ctx context.Context, basedOn uint64) (uint64, error) {
	version := s.node.State().SpecVersion
	if basedOn > version {
		st, err := s.node.ReadLinearizable(ctx)
		if err != nil {
			return 0, toAdminError(err)
		}
		version = st.SpecVersion
		s.snapshot.awaitSnapshot(ctx, func(v *nodeSnapshot) bool { return v.Version >= version })
	}
	if basedOn != 0 && basedOn != version {
		return 0, admin.ConflictError(fmt.Sprintf("spec %d is in force, not %d", version, basedOn), "nothing was changed; `spillway get spec` prints the spec in force: apply the change to that")
	}
	return version, nil
}
