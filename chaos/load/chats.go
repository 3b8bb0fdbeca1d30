package load

import (
	"math"
	"math/rand/v2"
	"time"
)

// chatKind is how conversations of one kind go.
type chatKind struct {
	common int                                // tokens that every conversation of everybody begins with
	user   Lengths                            // tokens that all of one client's begin with after that
	system func(rng *rand.Rand) int           // tokens of what one conversation is about; nil for none
	ask    Lengths                            // tokens of a question
	answer Lengths                            // and of an answer
	turns  func(rng *rand.Rand) int           // questions of a conversation
	think  func(rng *rand.Rand) time.Duration // between an answer and the next question
}

// talks are conversations of many turns, of clients who have one after the other.
func (w *Workload) talks(kind *chatKind, clients []int) Roots {
	return w.closed(clients, func(c *client) *Request {
		return (&talk{w: w, c: c, kind: kind, about: kind.user.draw(c.rng)}).begin()
	})
}

type talk struct {
	w     *Workload
	c     *client
	kind  *chatKind
	about int // tokens of what all of the client's conversations begin with
	id    uint64
	turns int
}

func (t *talk) begin() *Request {
	t.id, t.turns = t.c.next(), t.kind.turns(t.c.rng)
	prompt := make([]Piece, 0, 2*t.turns+3)
	add := func(id uint64, tokens int) {
		if tokens > 0 {
			prompt = append(prompt, Piece{ID: id, Tokens: tokens})
		}
	}
	add(mix(0xc4a7), t.kind.common)
	if t.kind.user.Median > 0 {
		add(mix(t.c.id), t.about)
	}
	if t.kind.system != nil {
		add(mix(t.id), t.kind.system(t.c.rng))
	}
	return t.ask(prompt, 0)
}

// ask goes on with a conversation. All its prompts share their memory: each is the beginning of the next.
func (t *talk) ask(so []Piece, turn int) *Request {
	prompt := append(so, Piece{ID: mix(t.id ^ mix(uint64(2*turn+1))), Tokens: t.kind.ask.draw(t.c.rng)})
	return t.c.request(t.w, t, t.id, turn, prompt, t.kind.answer.draw(t.c.rng), mix(t.id^mix(uint64(2*turn+2))))
}

func (t *talk) ended(r *Request, push func(time.Duration, *Request)) {
	think := t.w.think(t.kind.think(t.c.rng))
	if turn := int(r.Turn) + 1; turn < t.turns {
		push(think, t.ask(append(r.Prompt, Piece{ID: r.Answer, Tokens: r.Output}), turn))
		return
	}
	push(think, t.begin())
}

// chats are short conversations as people have them: 19 % of a prompt is like another of the same user's, by the mean of
// all pairs, and 2.5 % like another user's (as measured on public chats by SkyWalker's authors, whose program ends answers at 512
// tokens).
func (w *Workload) chats() (Roots, error) {
	return w.talks(&chatKind{
		common: 6, user: Lengths{Median: 40, P90: 100, Max: 400},
		ask: Lengths{Median: 200, P90: 700, Max: 2000}, answer: Lengths{Median: 220, P90: 500, Max: 512},
		turns: func(rng *rand.Rand) int { return 1 + min(int(rng.ExpFloat64()*2), 11) },
		think: exponential(2 * time.Second),
	}, []int{40, 30, 30}), nil
}

// coding is the code-generation catalogue: every conversation is about a body of code of its own, of 3,000 to 100,000
// tokens (55,000 by the mean), and has 2 to 20 turns (6) of 1,500 tokens in and 800 out.
func (w *Workload) coding() (Roots, error) {
	return w.talks(&chatKind{
		system: func(rng *rand.Rand) int { return 3000 + int(97_000*math.Pow(rng.Float64(), 0.8654)) },
		ask:    Lengths{Median: 1500}, answer: Lengths{Median: 800},
		turns: func(rng *rand.Rand) int { return 2 + min(int(rng.ExpFloat64()*4.65), 18) },
		think: exponential(2 * time.Second),
	}, []int{30}), nil
}

func exponential(mean time.Duration) func(*rand.Rand) time.Duration {
	return func(rng *rand.Rand) time.Duration { return time.Duration(rng.ExpFloat64() * float64(mean)) }
}
