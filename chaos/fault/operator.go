package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
)

// operatorInjury makes the mistakes of operators through the admin API of the global nodes.
type operatorInjury struct{ files *fleet.Files }

// operatorRecord is what a mistake changed and how the nodes answered. It is stored until the fault is cleared.
type operatorRecord struct {
	Spec    string   `json:"spec,omitempty"`   // the text before
	Tried   []string `json:"tried,omitempty"`  // texts that were applied or may have been
	Drains  []string `json:"drains,omitempty"` // paths that were drained
	Member  string   `json:"member,omitempty"` // a voter that was removed
	Addr    string   `json:"addr,omitempty"`
	Outcome []string `json:"outcome"`
}

// operatorReason is the reason in the audit log.
const operatorReason = "injected fault "

func (k *operatorInjury) recordPath(l *lease) string {
	return filepath.Join(faultDir(k.files), "replaced", l.Spec.ID, "operator.json")
}

func (k *operatorInjury) findVictims(s Spec) ([]string, error) {
	switch s.Kind {
	case Drain:
		set, err := targetSet(k.files.Layout, nodeSets(k.files.Layout), s, false)
		if err != nil {
			return nil, err
		}
		if s.Target.Worker == "" {
			return []string{s.Target.Region + s.Target.Zone}, nil
		}
		var out []string
		for _, n := range k.files.NodesByRole("worker") {
			if set[n.ID()] {
				out = append(out, n.Region+"/"+n.Zone+"/"+n.Name)
			}
		}
		return out, nil
	case OperatorRemoveVoter:
		nodes, err := selectProcesses(k.files, s, func() (string, error) { return findLeader(k.files) })
		if err == nil && nodes[0].Role != "global" {
			err = fmt.Errorf("%s: %s is no global node", s.Kind, nodes[0].ID())
		}
		return nodeIDs(nodes), err
	}
	return nil, nil
}

// callTimeoutOperator bounds one call of a node.
const callTimeoutOperator = 5 * time.Second

// callGlobal makes a call of one global node after the other until one answers, the leader first.
func (k *operatorInjury) callGlobal(ctx context.Context, call func(context.Context, *admin.Client) error) error {
	nodes := k.files.NodesByRole("global")
	if leader, err := findLeader(k.files); err == nil {
		slices.SortStableFunc(nodes, func(a, b fleet.Node) int {
			return strings.Compare(fmt.Sprint(a.ID() != leader), fmt.Sprint(b.ID() != leader))
		})
	}
	var last error
	for _, n := range nodes {
		if k.files.RunningPID(n.ID()) == 0 {
			continue
		}
		if last = callNodeAdmin(ctx, n, call); last == nil || errors.As(last, new(*admin.Error)) {
			return last
		}
	}
	return fmt.Errorf("no global node answered: %w", last)
}

func callNodeAdmin(ctx context.Context, n fleet.Node, call func(context.Context, *admin.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeoutOperator)
	defer cancel()
	c, err := admin.Dial("unix://"+n.AdminSocket(), nil)
	if err != nil {
		return err
	}
	defer c.Close()
	return call(ctx, c)
}

func (k *operatorInjury) apply(ctx context.Context, l *lease) error {
	r, known := k.readRecord(l)
	if known && l.Spec.Kind != Drain { // renewed, or restored by another process
		return nil
	}
	var err error
	switch l.Spec.Kind {
	case Drain:
		err = k.drainPaths(ctx, l, &r, l.Victims, true)
	case OperatorNonsense:
		err = k.applyNonsense(ctx, l, &r)
	case OperatorTwoAtOnce:
		err = k.applyTwice(ctx, l, &r)
	case OperatorDrainAll:
		var regions []string
		for _, s := range fleet.AllSites()[:k.files.Layout.Regions] {
			regions = append(regions, s.Name)
		}
		err = k.drainPaths(ctx, l, &r, regions, false)
	case OperatorOldArchive:
		err = k.restoreOld(ctx, l, &r)
	case OperatorRemoveVoter:
		err = k.removeVoter(ctx, l, &r)
	}
	return errors.Join(err, k.writeRecord(l, r))
}

func (k *operatorInjury) readRecord(l *lease) (r operatorRecord, ok bool) {
	b, err := os.ReadFile(k.recordPath(l))
	return r, err == nil && json.Unmarshal(b, &r) == nil
}

func (k *operatorInjury) writeRecord(l *lease, r operatorRecord) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(k.recordPath(l)), 0o700); err != nil {
		return err
	}
	return replaceFile(k.recordPath(l), b, 0o600)
}

// drainPaths drains one path after the other; if must is set, a refusal is an error.
func (k *operatorInjury) drainPaths(ctx context.Context, l *lease, r *operatorRecord, paths []string, must bool) error {
	in, _ := FindKind(l.Spec.Kind)
	over, _ := time.ParseDuration(in.param(l.Spec, "over"))
	for _, path := range paths {
		request := admin.DrainRequest{
			Path: path, ForMS: max(time.Until(l.Until).Milliseconds(), 1000), Reason: operatorReason + l.Spec.ID,
			OverMS: over.Milliseconds(), Force: in.param(l.Spec, "force") == "yes", Replace: slices.Contains(r.Drains, path),
		}
		err := k.callGlobal(ctx, func(ctx context.Context, c *admin.Client) error {
			_, err := c.StartDrain(ctx, request)
			return err
		})
		switch {
		case err == nil && !slices.Contains(r.Drains, path):
			r.Drains = append(r.Drains, path)
			r.Outcome = append(r.Outcome, path+" is drained")
		case err != nil && must:
			return fmt.Errorf("draining %s: %w", path, err)
		case err != nil:
			r.Outcome = append(r.Outcome, fmt.Sprintf("the drain of %s is refused: %v", path, err))
		}
	}
	return nil
}

// readSpec remembers the spec in force.
func (k *operatorInjury) readSpec(ctx context.Context, r *operatorRecord) (version uint64, err error) {
	err = k.callGlobal(ctx, func(ctx context.Context, c *admin.Client) error {
		s, err := c.GetSpecLinearizable(ctx)
		if err == nil {
			version, r.Spec = s.Version, s.Text
		}
		return err
	})
	return version, err
}

// nonsenseSpec is valid YAML that no spec may be.
const nonsenseSpec = "zone: {name: 42}\nservices: [{name: ..}]\nregions: nowhere\nunknown_key: true\n"

func (k *operatorInjury) applyNonsense(ctx context.Context, l *lease, r *operatorRecord) error {
	if _, err := k.readSpec(ctx, r); err != nil {
		return err
	}
	r.Tried = append(r.Tried, nonsenseSpec)
	err := k.callGlobal(ctx, func(ctx context.Context, c *admin.Client) error {
		_, err := c.ApplySpec(ctx, admin.ApplyRequest{Name: "nonsense.yaml", Text: nonsenseSpec, Reason: operatorReason + l.Spec.ID})
		return err
	})
	if err == nil {
		r.Outcome = append(r.Outcome, "the nonsense was ACCEPTED")
	} else {
		r.Outcome = append(r.Outcome, "refused: "+err.Error())
	}
	return nil
}

// applyTwice lets two operators replace the same version at the same time, at two nodes if there are.
func (k *operatorInjury) applyTwice(ctx context.Context, l *lease, r *operatorRecord) error {
	version, err := k.readSpec(ctx, r)
	if err != nil {
		return err
	}
	nodes := k.files.NodesByRole("global")
	for i := range 2 {
		text, err := changeSpec(r.Spec, i+1)
		if err != nil {
			return err
		}
		r.Tried = append(r.Tried, text)
	}
	outcome := make([]string, 2)
	var both sync.WaitGroup
	for i := range outcome {
		both.Go(func() {
			err := callNodeAdmin(ctx, nodes[i%len(nodes)], func(ctx context.Context, c *admin.Client) error {
				_, err := c.ApplySpec(ctx, admin.ApplyRequest{Name: "spec.yaml", Text: r.Tried[i], BasedOn: version, Reason: operatorReason + l.Spec.ID})
				return err
			})
			if outcome[i] = fmt.Sprintf("operator %d is accepted", i+1); err != nil {
				outcome[i] = fmt.Sprintf("operator %d is refused: %v", i+1, err)
			}
		})
	}
	both.Wait()
	r.Outcome = append(r.Outcome, outcome...)
	return nil
}

// changeSpec returns a spec with another TTL of its first service, because a change of comments alone is none.
func changeSpec(text string, seconds int) (string, error) {
	s, err := spec.Decode("spec.yaml", []byte(text))
	if err != nil {
		return "", fmt.Errorf("reading the spec in force: %w", err)
	}
	if len(s.Services) == 0 {
		return "", errors.New("the spec in force has no service to change")
	}
	s.Services[0].TTL += spec.Duration(time.Duration(seconds) * time.Second)
	return string(spec.Encode(s)), nil
}

// restoreOld changes the spec and puts an archive of before in force.
func (k *operatorInjury) restoreOld(ctx context.Context, l *lease, r *operatorRecord) error {
	if _, err := k.readSpec(ctx, r); err != nil {
		return err
	}
	newer, err := changeSpec(r.Spec, 3)
	if err != nil {
		return err
	}
	r.Tried = append(r.Tried, newer)
	return k.callGlobal(ctx, func(ctx context.Context, c *admin.Client) error {
		archive, err := c.GetArchive(ctx)
		if err != nil {
			return err
		}
		if _, err := c.ApplySpec(ctx, admin.ApplyRequest{Name: "spec.yaml", Text: newer, Reason: operatorReason + l.Spec.ID}); err != nil {
			return err
		}
		a, err := c.RestoreArchive(ctx, admin.ArchiveRequest{Data: archive.Data, Reason: operatorReason + l.Spec.ID})
		if err == nil {
			r.Outcome = append(r.Outcome, fmt.Sprintf("the old archive is restored as version %d", a.Version))
		}
		return err
	})
}

func (k *operatorInjury) removeVoter(ctx context.Context, l *lease, r *operatorRecord) error {
	return k.callGlobal(ctx, func(ctx context.Context, c *admin.Client) error {
		all, err := c.ListMembers(ctx)
		if err != nil {
			return err
		}
		known := false
		for _, m := range all.Members {
			if m.Name == l.Victims[0] {
				r.Member, r.Addr, known = m.Name, m.Addr, true
			}
		}
		if known || r.Member == "" { // otherwise an earlier call removed it and lost its answer: it was sent to the leader that it removed
			if _, err := c.RemoveMember(ctx, l.Victims[0], operatorReason+l.Spec.ID); err != nil {
				return err
			}
		}
		r.Outcome = append(r.Outcome, l.Victims[0]+" is removed")
		return nil
	})
}

func (k *operatorInjury) clear(ctx context.Context, l *lease) error {
	r, known := k.readRecord(l)
	if !known {
		return nil
	}
	for _, path := range r.Drains {
		if drained, err := k.isDrained(ctx, path, l); err != nil {
			return err
		} else if !drained {
			continue
		}
		if err := k.callGlobal(ctx, func(ctx context.Context, c *admin.Client) error {
			_, err := c.EndDrain(ctx, path, operatorReason+l.Spec.ID+" is cleared")
			return err
		}); err != nil {
			return err
		}
	}
	if r.Spec != "" {
		if err := k.restoreSpec(ctx, l, r); err != nil {
			return err
		}
	}
	if r.Member != "" {
		if err := k.callGlobal(ctx, func(ctx context.Context, c *admin.Client) error {
			all, err := c.ListMembers(ctx)
			if err != nil || slices.ContainsFunc(all.Members, func(m admin.Member) bool { return m.Name == r.Member && m.Voter }) {
				return err
			}
			_, err = c.AddMember(ctx, admin.MemberRequest{Name: r.Member, Addr: k.memberAddr(r), Voter: true, Reason: operatorReason + l.Spec.ID + " is cleared"})
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// memberAddr is the address at which the leader's config has a member: that of its own link to it.
func (k *operatorInjury) memberAddr(r operatorRecord) string {
	leader, err := findLeader(k.files)
	for _, link := range k.files.Links() {
		if err == nil && link.Class == "raft" && link.From == leader && link.To == r.Member {
			return link.Listen.String()
		}
	}
	return r.Addr
}

// restoreSpec puts a spec in force again unless it is, or an operator has replaced it since.
func (k *operatorInjury) restoreSpec(ctx context.Context, l *lease, r operatorRecord) error {
	var now operatorRecord
	if _, err := k.readSpec(ctx, &now); err != nil || !slices.Contains(r.Tried, now.Spec) {
		return err
	}
	return k.callGlobal(ctx, func(ctx context.Context, c *admin.Client) error {
		_, err := c.ApplySpec(ctx, admin.ApplyRequest{Name: "spec.yaml", Text: r.Spec, Reason: operatorReason + l.Spec.ID + " is cleared"})
		return err
	})
}

// isDrained reports whether a path is drained by this fault.
func (k *operatorInjury) isDrained(ctx context.Context, path string, l *lease) (found bool, err error) {
	err = k.callGlobal(ctx, func(ctx context.Context, c *admin.Client) error {
		a, err := c.ListDrainsLinearizable(ctx)
		if err != nil {
			return err
		}
		found = slices.ContainsFunc(a.Drains, func(d admin.Drain) bool { return d.Path == path && d.Reason == operatorReason+l.Spec.ID })
		return nil
	})
	return found, err
}

func (k *operatorInjury) probe(ctx context.Context, l *lease) (bool, string, error) {
	r, known := k.readRecord(l)
	if !known {
		return false, "nothing was changed", nil
	}
	evidence := strings.Join(r.Outcome, "; ")
	if !l.Ended {
		return true, evidence, nil
	}
	for _, path := range r.Drains {
		if drained, err := k.isDrained(ctx, path, l); err != nil || drained {
			return true, path + " is still drained", err
		}
	}
	if r.Spec != "" {
		var now operatorRecord
		if _, err := k.readSpec(ctx, &now); err != nil || slices.Contains(r.Tried, now.Spec) {
			return true, "the spec is still that of the fault", err
		}
	}
	if r.Member != "" {
		err := k.callGlobal(ctx, func(ctx context.Context, c *admin.Client) error {
			all, err := c.ListMembers(ctx)
			if err == nil && !slices.ContainsFunc(all.Members, func(m admin.Member) bool { return m.Name == r.Member && m.Voter }) {
				err = fmt.Errorf("%s is no voter again yet", r.Member)
			}
			return err
		})
		if err != nil {
			return true, err.Error(), nil
		}
	}
	return false, "undone; it was: " + evidence, nil
}
