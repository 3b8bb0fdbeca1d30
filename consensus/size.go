package consensus

import "encoding/base64"

// stateSlack is what a snapshot has besides the texts and bodies that stateSize counts, in bytes: names of fields, numbers,
// times, keys, and the zone's signing state.
const (
	stateSlack  = 1 << 20
	recordSlack = 512 // likewise of one drain, record, spec or outcome
)

// stateSize is at least as much as the state takes as a snapshot. It is for deciding whether a write may be taken, so it
// reads lengths and encodes nothing.
func stateSize(s *State) int {
	body := func(b []byte) int { return base64.StdEncoding.EncodedLen(len(b)) }
	n := stateSlack + body(s.Plan) + textSize(s.PlanOrigin.Actor, s.PlanOrigin.Reason, s.PlanOrigin.Detail)
	for i := range s.SpecHistory {
		n += recordSlack + body(s.SpecHistory[i].Body) + textSize(s.SpecHistory[i].Actor)
	}
	if s.Stage != nil {
		n += recordSlack + body(s.Stage.Body) + textSize(s.Stage.Guard, s.Stage.Figures, s.Stage.Actor, s.Stage.Reason) + textSize(s.Stage.Regions...)
	}
	for i := range s.Drains {
		d := &s.Drains[i]
		n += recordSlack + textSize(d.Path, d.Reason, d.Actor)
	}
	for i := range s.Audit {
		r := &s.Audit[i]
		n += recordSlack + textSize(r.Actor, r.Action, r.Subject, r.Reason, r.Detail)
	}
	for i := range s.done {
		n += recordSlack + textSize(s.done[i].ID)
	}
	return n + textSize(s.Wanted...)
}

// textSize is at least as much as texts take in JSON.
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
