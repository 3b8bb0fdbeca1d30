package consensus

import "encoding/base64"

// stateSlack is the part of a snapshot besides the texts and bodies that stateSize counts, in bytes: names of fields,
// numbers, times, keys, and the signing state of the zone.
const (
	stateSlack  = 1 << 20
	recordSlack = 512 // the same for one drain, record, spec or outcome
)

// stateSize is an upper bound of the size of the state as a snapshot, in bytes. It decides whether a write may be
// accepted, so it reads lengths and encodes nothing.
func stateSize(s *State) int {
	body := func(b []byte) int { return base64.StdEncoding.EncodedLen(len(b)) }
	n := stateSlack + body(s.Plan) + textSize(s.PlanOrigin.Actor, s.PlanOrigin.Reason, s.PlanOrigin.Detail)
	for i := range s.SpecHistory {
		n += recordSlack + body(s.SpecHistory[i].Body) + textSize(s.SpecHistory[i].Actor)
	}
	if s.Rollout != nil {
		n += recordSlack + body(s.Rollout.Body) + textSize(s.Rollout.Conditions, s.Rollout.Figures, s.Rollout.Actor, s.Rollout.Reason) + textSize(s.Rollout.Regions...)
	}
	for i := range s.Drains {
		d := &s.Drains[i]
		n += recordSlack + textSize(d.Path, d.Reason, d.Actor)
	}
	for i := range s.Audit {
		r := &s.Audit[i]
		n += recordSlack + textSize(r.Actor, r.Action, r.Subject, r.Reason, r.Detail)
	}
	for i := range s.outcomes {
		n += recordSlack + textSize(s.outcomes[i].ID)
	}
	return n + textSize(s.PendingVoters...)
}

// textSize is an upper bound of the size of texts in JSON.
func textSize(texts ...string) (n int) {
	for _, t := range texts {
		for i := range len(t) {
			switch c := t[i]; {
			case c == '"', c == '\\', c == '\n', c == '\r', c == '\t':
				n += 2
			case c < 0x20, c >= 0x7f, c == '<', c == '>', c == '&': // \\u and four digits at the most
				n += 6
			default:
				n++
			}
		}
	}
	return n
}
