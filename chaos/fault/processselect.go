package fault

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/internal/admin"
)

// leaderNode is the Target.Node of the global node that leads.
const leaderNode = "leader"

// selectProcesses returns the nodes that a checked Spec of a process or worker fault injures. leader is called if the
// target is the leader.
func selectProcesses(p *fleet.Files, s Spec, leader func() (string, error)) ([]fleet.Node, error) {
	if s.Kind == LeaderDead || s.Target.Node == leaderNode {
		id, err := leader()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Kind, err)
		}
		n, ok := p.FindNode(id)
		if !ok {
			return nil, fmt.Errorf("%s: the leader is %q, which is no node of the fleet", s.Kind, id)
		}
		return []fleet.Node{n}, nil
	}
	if s.Kind == GlobalDead {
		return p.NodesByRole("global"), nil
	}
	inside, err := targetSet(p.Layout, nodeSets(p.Layout), s, false)
	if err != nil {
		return nil, err
	}
	role := rolesOfKind[s.Kind]
	out := slices.DeleteFunc(slices.Clone(p.Nodes), func(n fleet.Node) bool {
		return !inside[n.ID()] || role != "" && n.Role != role
	})
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: %s is no %s", s.Kind, describeTarget(s), role)
	}
	return out, nil
}

// rolesOfKind is the role that a kind injures, where it is only one.
var rolesOfKind = map[Kind]string{WorkerDead: "worker", LocalDead: "local", GatewayDead: "regional"}

// leaderTimeout bounds the search for a leader.
const leaderTimeout = 10 * time.Second

// findLeader asks the global nodes which of them leads, until one does.
func findLeader(p *fleet.Files) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), leaderTimeout)
	defer cancel()
	for {
		for _, n := range p.NodesByRole("global") {
			if leader := askLeader(ctx, n); leader != "" && p.RunningPID(leader) != 0 {
				return leader, nil
			}
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("no global node named a leader within %s", leaderTimeout)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func askLeader(ctx context.Context, n fleet.Node) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := admin.Dial("unix://"+n.AdminSocket(), nil)
	if err != nil {
		return ""
	}
	defer c.Close()
	s, err := c.GetStatus(ctx)
	if err != nil || s.Raft == nil || s.Raft.State != "leader" {
		return ""
	}
	return s.Raft.ID
}

func nodeIDs(nodes []fleet.Node) (out []string) {
	for _, n := range nodes {
		out = append(out, n.ID())
	}
	return out
}
