package consensus

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxStaged is the most regions that a stage may name.
const maxStaged = 64

// Trial is how a spec is tried before it counts as kept.
type Trial struct {
	// Regions in which the spec is in force meanwhile, in ascending order; none: everywhere.
	Regions []string `json:"regions,omitempty"`
	// Guard says what takes it back. It is opaque here.
	Guard string `json:"guard,omitempty"`
	// Window is how long the trial lasts; 0: until somebody ends it.
	Window time.Duration `json:"window,omitempty"`
}

// Stage is a spec on trial. There is at most one.
type Stage struct {
	Trial
	// Number is the raft index of the command that began it: no two stages share one.
	Number uint64 `json:"number"`
	// Body is the candidate, which takes the place of the spec in force when it is promoted. In a trial everywhere the
	// candidate is in force already, and Body is the spec to go back to.
	Body []byte `json:"body"`
	// Elapsed is how much of the window has passed, as leaders counted it: no node's wall clock is in it.
	Elapsed time.Duration `json:"elapsed,omitempty"`
	// Figures are what the leader measured last. They are opaque here.
	Figures string    `json:"figures,omitempty"`
	Actor   string    `json:"actor,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at,omitzero"` // by the proposing node's clock; for people
}

// Everywhere says that the candidate is in force in all regions, and Body is what was before it.
func (g *Stage) Everywhere() bool { return len(g.Regions) == 0 }

// In says that a region serves by the candidate while others do not.
func (g *Stage) In(region string) bool { return slices.Contains(g.Regions, region) }

// where is the subject of an audit record.
func (g *Stage) where() string {
	if g.Everywhere() {
		return "everywhere"
	}
	if more := len(g.Regions) - maxNamed; more > 0 {
		return fmt.Sprintf("in %s and %d more", strings.Join(g.Regions[:maxNamed], ", "), more)
	}
	return "in " + strings.Join(g.Regions, ", ")
}

// maxNamed is how many regions an audit record names.
const maxNamed = 8

func (t *Trial) bounded() error {
	switch {
	case len(t.Regions) > maxStaged:
		return fmt.Errorf("a spec may be staged in at most %d regions", maxStaged)
	case len(t.Guard) > maxReason:
		return fmt.Errorf("guard may have at most %d bytes", maxReason)
	case t.Window < 0:
		return fmt.Errorf("a stage cannot last %s", t.Window)
	}
	for i, name := range t.Regions {
		if name == "" || len(name) > maxName || i > 0 && t.Regions[i-1] >= name {
			return fmt.Errorf("regions of a stage must have names and be in order, each once: %.64q", name)
		}
	}
	return nil
}

// mayChange is what every way of putting a spec has to pass while another is on trial.
func (s *State) mayChange(c command) (result, bool) {
	g := s.Stage
	switch {
	case c.BasedOn != s.SpecVersion:
		return result{Code: codeConflict, Current: s.SpecVersion}, false
	case c.Ends != 0 && (g == nil || g.Number != c.Ends):
		return refuse("stage %d is over already: look at the audit for how it ended", c.Ends), false
	case c.Ends != 0 && !bytes.Equal(g.Body, c.Body):
		return refuse("stage %d holds another spec", c.Ends), false
	case c.Ends == 0 && g != nil && !c.Replace:
		return refuse("a spec is on trial %s (stage %d): promote it, roll it back, or replace it", g.where(), g.Number), false
	}
	return result{}, true
}

// putStage puts a spec on trial in some regions, beside the one in force.
func (s *State) putStage(c command, k checks) result {
	if r, ok := s.mayChange(c); !ok {
		return r
	}
	switch {
	case c.Trial == nil || len(c.Trial.Regions) == 0 || c.Ends != 0:
		return refuse("a stage needs a region")
	case s.SpecVersion == 0:
		return refuse("nothing is in force yet that a spec could be staged beside: apply it")
	}
	if r, ok := judge("spec", unless(c.Judged, k.spec), s.Spec, c.Body); !ok {
		return r
	}
	if s.Signing != nil {
		if err := s.Signing.checkZone(held(k.holds, c.Body)); err != nil {
			return refuse("%v", err)
		}
	}
	s.beginStage(c, c.Body)
	return result{Code: codeOK, Value: s.Index}
}

// beginStage starts a stage, in place of another.
func (s *State) beginStage(c command, body []byte) {
	s.Stage = &Stage{Trial: *c.Trial, Number: s.Index, Body: body, Actor: c.Actor, Reason: c.Reason, At: c.At}
}

// endStage ends a stage with the spec in force left as it is: back, for one in some regions, and kept for one everywhere.
// The other ends put a spec, and are putSpec's.
func (s *State) endStage(c command) result {
	if s.Stage == nil || s.Stage.Number != c.Ends {
		return refuse("stage %d is over already: look at the audit for how it ended", c.Ends)
	}
	s.Stage = nil
	return result{Code: codeOK, Value: s.SpecVersion}
}

// markStage writes down how far a stage has come. What is older than what is known changes nothing.
func (s *State) markStage(c command) result {
	if s.Stage == nil || s.Stage.Number != c.Ends {
		return refuse("stage %d is over already", c.Ends)
	}
	g := *s.Stage
	g.Elapsed, g.Figures = max(g.Elapsed, c.Elapsed), c.Detail
	s.Stage = &g
	return result{Code: codeOK}
}

// auditedStage names what was done to a stage.
func (s *State) auditedStage(c command) (action, subject string) {
	spec := "spec " + strconv.FormatUint(s.SpecVersion, 10)
	switch {
	case c.Kind == kindStage:
		return "stage", "spec " + strconv.FormatUint(s.SpecVersion+1, 10) + " " + s.Stage.where()
	case c.Kind == kindEndStage:
		return c.Action, fmt.Sprintf("stage %d: %s stays", c.Ends, spec)
	case c.Ends != 0:
		return c.Action, fmt.Sprintf("stage %d: %s", c.Ends, spec)
	}
	return "apply", spec + " on trial everywhere"
}

func (g *Stage) check() error {
	if g == nil {
		return nil
	}
	if g.Number == 0 || len(g.Body) == 0 || g.Elapsed < 0 {
		return fmt.Errorf("stage %d has no number, no spec, or has lasted %s", g.Number, g.Elapsed)
	}
	return g.Trial.bounded()
}

// Change is a new spec and how it comes into force.
type Change struct {
	BasedOn uint64 // the version in force that it was written for
	Body    []byte
	By      By
	Detail  string // what differs, for the audit; at most 8 KiB are kept
	Trial   *Trial // nil: it is in force at once, for good
	Replace bool   // end a stage that is under way
}

// Change puts a spec in force, or on trial. number is the new version, or that of a stage in some regions.
func (n *Node) Change(ctx context.Context, x Change) (number uint64, err error) {
	c := n.write(kindPutSpec)
	if x.Trial != nil && len(x.Trial.Regions) > 0 {
		c.Kind = kindStage
	}
	c.BasedOn, c.Body, c.Actor, c.Reason, c.Trial, c.Replace = x.BasedOn, x.Body, x.By.Actor, x.By.Reason, x.Trial, x.Replace
	c.Detail = abridged(x.Detail)
	r, err := n.propose(ctx, c)
	return r.Value, err
}

// EndStage promotes what is on trial, or takes it back, and returns the version that is in force then.
func (n *Node) EndStage(ctx context.Context, number uint64, promote bool, by By, detail string) (version uint64, err error) {
	s := n.State()
	g := s.Stage
	if g == nil || g.Number != number {
		return 0, ErrRefused{Reason: fmt.Sprintf("stage %d is over already: look at the audit for how it ended", number)}
	}
	c := n.write(kindEndStage)
	if promote != g.Everywhere() { // a spec takes the other's place, and its version rises: SOA serials never go back
		c.Kind, c.BasedOn, c.Body = kindPutSpec, s.SpecVersion, g.Body
	}
	c.Action = "rollback"
	if promote {
		c.Action = "promote"
	}
	c.Ends, c.Actor, c.Reason, c.Detail = number, by.Actor, by.Reason, abridged(detail)
	r, err := n.propose(ctx, c)
	return r.Value, err
}

// MarkStage writes down how much of a stage's window has passed and what was measured, so that another leader goes on
// from there. Only the leader knows: elsewhere it is ErrNotLeader.
func (n *Node) MarkStage(ctx context.Context, number uint64, elapsed time.Duration, figures string) error {
	if !n.IsLeader() {
		return ErrNotLeader
	}
	c := n.write(kindMarkStage)
	c.ID, c.Ends, c.Elapsed, c.Detail = "", number, elapsed, abridged(figures) // a repeat is harmless
	_, err := n.propose(ctx, c)
	return err
}

// abridged is a detail that fits.
func abridged(detail string) string {
	if len(detail) <= maxDetail {
		return detail
	}
	return strings.ToValidUTF8(detail[:maxDetail-len(cut)], "") + cut
}
