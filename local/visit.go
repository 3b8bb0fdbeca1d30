package local

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/poison"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/queue"
)

// visit is one request from its arrival to the last byte of its answer.
type visit struct {
	r        *http.Request
	body     []byte // nil once it is let go of
	charge   relay.BodyCharge
	asks     bool         // what goes on asks for the usage of the stream, which its client did not
	shape    openai.Shape // of its path
	env      openai.Envelope
	hop      relay.Hop
	class    spec.Class
	model    string
	named    int   // the output limit that the request named, in tokens; 0 when none
	capped   int   // the one that it is given instead; 0 when none
	pinned   bool  // the caller insists on the model
	estimate int64 // prompt tokens as the gateway or we estimated them, before correction
	exact    bool  // estimate is the number of tokens, as a question states it
	longest  int64 // tokens of the longest input when there are several, each a sequence of its own; 0 otherwise
	query    pick.Query
	blocks   [16]uint64 // room for those of most prompts
	marks    []uint64   // names of the prompt's beginnings in sketches; they lie in markRoom
	markRoom [capacity.MaxLandmarks]uint64
	excluded [2]int32
	retries  int
	arrived  time.Time
	deadline time.Time // the caller's own; zero when none
	due      time.Time // when the caller wants its first token; zero when it does not say
	offered  bool      // it was counted as demand
	stream   resumption
	races    bool          // a second attempt may be made beside the first
	leaves   bool          // the handler may return before the answer has ended
	cold     time.Duration // how much longer it may wait because its model must be loaded
	above    progress      // what the gateway knows of its time in the queue

	item    queue.Item[*visit]
	through *relay.Replay // its body, where that is not read; nil otherwise
	kind    relay.Kind    // how it passes

	print  [1]uint64      // room for its own fingerprint
	prints []uint64       // fingerprints of the requests that it is made of; none where no body was read
	fate   poison.Verdict // the worst since a worker died under it
	trial  bool           // it is the one further attempt of a request under which a worker died

	ready chan verdict  // one verdict for each time it waits
	told  func(verdict) // is told it instead, in virtual time, where nobody waits on channels
}

// letGo lets go of the body, once its answer has begun and cannot go on with another worker. Where two attempts race, the
// other may still be reading it.
func (v *visit) letGo() {
	if v.stream.seam != nil || v.races {
		return
	}
	v.body, v.env.Prompt = nil, nil
	v.charge.Release()
}

// tell ends a wait.
func (v *visit) tell(d verdict) {
	if v.told != nil {
		v.told(d)
		return
	}
	v.ready <- d
}

// flow is who the visit counts for in the queue: its tenant, or for a trusted one whoever that asks for.
func (v *visit) flow() string {
	if v.hop.Flow == "" {
		return v.hop.Tenant
	}
	return v.hop.Tenant + " " + v.hop.Flow // neither has a space
}

// verdict ends a wait: a place, or a refusal.
type verdict struct {
	attempt *attempt
	refusal *openai.Error
}

// attempt is one forward to one worker.
type attempt struct {
	visit    *visit
	worker   *worker
	pool     *pool
	entry    pick.Entry
	choice   pick.Verdict
	sent     time.Time
	work     float64        // uncached tokens in front of its first token, its own included
	untold   bool           // how long that took has told nothing yet: see timed
	seqs     float64        // sequences beside it when it was sent
	held     float64        // KV tokens held then
	exact    int            // 1 when the worker's cache was known and not guessed, else 0
	pace     float64        // seconds that the worker takes for a prompt token
	foreseen float64        // the predicted time to its first byte, in seconds
	before   pick.Prefilled // by the worker when the first byte came
	hedge    bool           // it is the second attempt of a race
	over     bool
	died     bool        // its worker died under it
	loose    bool        // its silence says nothing of its worker
	waits    atomic.Bool // for its client to take what was written; nothing is read meanwhile
	cancel   func(error)
	first    time.Time
	last     time.Time
}
