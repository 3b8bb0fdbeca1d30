package global

import (
	"context"
	"fmt"

	"github.com/spillway-lb/spillway/internal/admin"
)

// agreedSpec is the spec with every write made before the call, wherever it was made; this node's answers may follow a
// moment later.
func (s *Server) agreedSpec(ctx context.Context) (*admin.SpecAnswer, error) {
	st, err := s.node.Read(ctx)
	if err != nil {
		return nil, refusal(err)
	}
	if st.SpecVersion == 0 {
		return nil, admin.Unavailable("no spec is agreed yet", "spillway apply -f spec.yaml")
	}
	return &admin.SpecAnswer{Version: st.SpecVersion, Text: string(st.Spec)}, nil
}

// agreedDrains are the drains likewise.
func (s *Server) agreedDrains(ctx context.Context) (*admin.DrainAnswer, error) {
	st, err := s.node.Read(ctx)
	if err != nil {
		return nil, refusal(err)
	}
	return &admin.DrainAnswer{Drains: drainList(st.Drains)}, nil
}

// versionFor is the spec's version that an apply replaces, or the conflict with the one that it is based on. Versions
// only grow: who comes with a greater one than this node has got it elsewhere, and the leader knows.
func (s *Server) versionFor(ctx context.Context, basedOn uint64) (uint64, error) {
	version := s.node.State().SpecVersion
	if basedOn > version {
		st, err := s.node.Read(ctx)
		if err != nil {
			return 0, refusal(err)
		}
		version = st.SpecVersion
		s.await(ctx, func(v *View) bool { return v.version >= version })
	}
	if basedOn != 0 && basedOn != version {
		return 0, admin.Conflict(fmt.Sprintf("spec %d is in force, not %d", version, basedOn), "read it again and apply the change to that")
	}
	return version, nil
}
