package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// code says what became of a command.
type code string

const (
	codeOK       code = "ok"
	codeConflict code = "conflict"
	codeRefused  code = "refused"
)

const maxMessage = 4096

// result is the answer to one command, the same on every node.
type result struct {
	Code    code   `json:"code"`
	Value   uint64 `json:"value,omitempty"`   // the new version or epoch
	Current uint64 `json:"current,omitempty"` // on a conflict
	Index   uint64 `json:"index,omitempty"`   // at which it took place
	Message string `json:"message,omitempty"` // when refused
}

// checks judge bodies that this package does not understand. All are pure; any may be nil.
type checks struct {
	spec, plan func(prev, next []byte) error
	// holds says how long resolvers hold what a spec has them answered. It is pure too, and may be nil.
	holds func(spec []byte) Holds
}

// entry is a committed log entry.
type entry struct {
	index, term uint64
	data        []byte
	read        *foreseen // nil: nothing was foreseen
}

// apply is the whole of the replicated state machine: a pure function that shares what did not change with s and
// writes to nothing in it. An entry it cannot read or does not know changes nothing but the index.
func apply(s *State, e entry, c checks) (*State, result) {
	next := *s
	next.Index, next.Term = e.index, e.term
	cmd, err := e.read.read(e.data)
	if errors.Is(err, errUnknownKind) && cmd.Kind&kindOptional != 0 {
		return &next, result{Code: codeOK, Index: e.index}
	} else if err != nil {
		return &next, refuse("%v", err)
	}
	if o, ok := next.outcome(cmd.ID); ok {
		return &next, result{Code: codeOK, Value: o.Value, Index: o.Index}
	}
	r := next.run(cmd, c)
	if r.Code != codeOK {
		return &next, r
	}
	r.Index = e.index
	next.remember(cmd.ID, r)
	next.audit(cmd)
	return &next, r
}

// run changes s, a copy that nobody else holds yet; slices are replaced, never written into.
func (s *State) run(c command, k checks) result {
	switch c.Kind {
	case kindPutSpec:
		return s.putSpec(c, k)
	case kindPutPlan:
		return s.putPlan(c, k.plan)
	case kindPutDrain:
		return s.putDrain(c)
	case kindDeleteDrain:
		return s.deleteDrain(c)
	case kindExpire:
		s.Drains = without(s.Drains, func(d Drain) bool { return d.expired(c.At) })
		return result{Code: codeOK}
	case kindRotateKey, kindPurgeKeys:
		return s.rotateKey(c)
	case kindWant:
		return s.want(c)
	case kindNote:
		return result{Code: codeOK}
	case kindSign:
		return s.sign(c, k.holds)
	case kindStage:
		return s.putStage(c, k)
	case kindEndStage:
		return s.endStage(c)
	case kindMarkStage:
		return s.markStage(c)
	}
	return refuse("%v", errUnknownKind)
}

func (s *State) putSpec(c command, k checks) result {
	if r, ok := s.mayChange(c); !ok {
		return r
	}
	if c.Trial != nil && (len(s.Spec) == 0 || len(c.Trial.Regions) > 0 || c.Ends != 0) {
		return refuse("a spec can be tried everywhere only while there is one to go back to")
	}
	if r, ok := judge("spec", unless(c.Judged, k.spec), s.Spec, c.Body); !ok {
		return r
	}
	if s.Signing != nil {
		if err := s.Signing.checkZone(held(k.holds, c.Body)); err != nil {
			return refuse("%v", err)
		}
		s.Signing = s.Signing.outlive(held(k.holds, s.Spec), c.At)
	}
	s.Stage = nil
	if c.Trial != nil {
		s.beginStage(c, s.Spec)
	}
	s.SpecVersion++
	s.Spec = c.Body
	now := SpecEntry{Version: s.SpecVersion, Index: s.Index, Body: c.Body, Actor: c.Actor, At: c.At}
	s.SpecHistory = boundHistory(prepend(now, s.SpecHistory, maxSpecs))
	return result{Code: codeOK, Value: s.SpecVersion}
}

// putPlan also refuses a plan from another term than the entry's: a leader that lost its place while it computed, and
// whose old plan arrives late, must not overwrite the plan of its successor.
func (s *State) putPlan(c command, check func(prev, next []byte) error) result {
	if c.BasedOn != s.PlanEpoch {
		return result{Code: codeConflict, Current: s.PlanEpoch}
	}
	if c.Term != s.Term {
		return refuse("plan was made in term %d, and it is term %d now: make a new one", c.Term, s.Term)
	}
	if r, ok := judge("plan", unless(c.Judged, check), s.Plan, c.Body); !ok {
		return r
	}
	s.PlanEpoch++
	s.Plan, s.PlanTerm, s.PlanOrigin = c.Body, c.Term, Origin{}
	if c.Actor != "" { // earlier releases did not say
		s.PlanOrigin = Origin{Actor: c.Actor, Reason: c.Reason, Detail: c.Detail, At: c.At}
	}
	return result{Code: codeOK, Value: s.PlanEpoch}
}

func (s *State) putDrain(c command) result {
	at, found := s.findDrain(c.Path)
	switch {
	case c.Path == "":
		return refuse("a drain needs the path of a region, zone or worker")
	case !found && len(s.Drains) >= maxDrains:
		return refuse("%d drains are in force, the most there may be: undrain some first", maxDrains)
	}
	d := Drain{Path: c.Path, Until: c.Until, Reason: c.Reason, Actor: c.Actor, At: c.At}
	drains := slices.Clone(s.Drains)
	if found {
		drains[at] = d
	} else {
		drains = slices.Insert(drains, at, d)
	}
	s.Drains = drains
	return result{Code: codeOK}
}

func (s *State) deleteDrain(c command) result {
	if _, found := s.findDrain(c.Path); !found {
		return refuse("%q is not drained", c.Path)
	}
	s.Drains = without(s.Drains, func(d Drain) bool { return d.Path == c.Path })
	return result{Code: codeOK}
}

func (s *State) rotateKey(c command) result {
	if len(c.Body) != keySize {
		return refuse("a ticket key has %d bytes, not %d", keySize, len(c.Body))
	}
	if c.Kind == kindPurgeKeys {
		s.TicketKeys = nil
	}
	s.TicketKeys = prepend(Key{Secret: c.Body, At: c.At}, s.TicketKeys, maxKeys)
	return result{Code: codeOK}
}

// want has a member down for a vote, or strikes it off: whether it is a member at all is raft's to know, and the leader's
// to look at.
func (s *State) want(c command) result {
	at, found := slices.BinarySearch(s.Wanted, c.Path)
	switch wanted := c.Action == actionWant; {
	case c.Path == "":
		return refuse("a vote needs the name of a member")
	case wanted && !found && len(s.Wanted) >= maxWanted:
		return refuse("%d members wait for a vote, the most that may", maxWanted)
	case wanted && !found:
		s.Wanted = slices.Insert(slices.Clone(s.Wanted), at, c.Path)
	case !wanted && found:
		s.Wanted = slices.Delete(slices.Clone(s.Wanted), at, at+1)
	}
	return result{Code: codeOK}
}

// unless drops a check that the leader has made. What a version is based on is the same on every node, so is its verdict;
// and a node that starts again must not judge every spec of its log anew before it serves.
func unless(judged bool, check func(prev, next []byte) error) func(prev, next []byte) error {
	if judged {
		return nil
	}
	return check
}

// judge runs a check and turns whatever it does into an answer.
func judge(what string, check func(prev, next []byte) error, prev, next []byte) (r result, ok bool) {
	if len(bytes.TrimSpace(next)) == 0 {
		return refuse("an empty %s would leave nothing to answer from", what), false
	}
	if check == nil {
		return result{}, true
	}
	defer func() {
		if p := recover(); p != nil {
			r, ok = refuse("%s could not be checked: %v", what, p), false
		}
	}()
	if err := check(prev, next); err != nil {
		return refuse("%v", err), false
	}
	return result{}, true
}

func (s *State) outcome(id string) (outcome, bool) {
	if id == "" {
		return outcome{}, false
	}
	i := slices.IndexFunc(s.done, func(o outcome) bool { return o.ID == id })
	if i < 0 {
		return outcome{}, false
	}
	return s.done[i], true
}

func (s *State) remember(id string, r result) {
	if id == "" {
		return
	}
	keep := s.done[max(0, len(s.done)-maxOutcome+1):]
	s.done = append(slices.Clone(keep), outcome{ID: id, Index: r.Index, Value: r.Value})
}

func (s *State) findDrain(path string) (int, bool) {
	return slices.BinarySearchFunc(s.Drains, path, func(d Drain, p string) int { return strings.Compare(d.Path, p) })
}

func refuse(format string, args ...any) result {
	m := fmt.Sprintf(format, args...)
	return result{Code: codeRefused, Message: strings.ToValidUTF8(m[:min(len(m), maxMessage)], "")}
}

// boundHistory drops the oldest specs beyond maxSpecs and maxHistory.
func boundHistory(specs []SpecEntry) []SpecEntry {
	bytes := 0
	for i := range specs {
		if bytes += len(specs[i].Body); i == maxSpecs || i >= 2 && bytes > maxHistory {
			return specs[:i:i]
		}
	}
	return specs
}

func prepend[T any](v T, old []T, limit int) []T {
	return append([]T{v}, old[:min(len(old), limit-1)]...)
}

func without(in []Drain, drop func(Drain) bool) []Drain {
	return slices.DeleteFunc(slices.Clone(in), drop)
}
