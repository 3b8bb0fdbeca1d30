package load

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// chatProfile describes one kind of conversation.
type chatProfile struct {
	commonTokens  int                                // common prefix of all conversations, in tokens
	userPrefix    LengthDist                         // then, common prefix of one client's conversations
	systemTokens  func(rng *rand.Rand) int           // system prompt of one conversation, in tokens; nil for none
	question      LengthDist                         // tokens of a question
	answer        LengthDist                         // tokens of an answer
	drawTurns     func(rng *rand.Rand) int           // questions of a conversation
	drawThinkTime func(rng *rand.Rand) time.Duration // between an answer and the next question
}

// newChatLoop is a closed loop of conversations with several turns; each client has one after the other.
func (w *Workload) newChatLoop(kind *chatProfile, clients []int) RootSource {
	return w.newClosedLoop(clients, func(c *loopClient) *Request {
		return (&chatSession{workload: w, client: c, profile: kind, userPrefixTokens: kind.userPrefix.drawLength(c.rng)}).beginConversation()
	})
}

type chatSession struct {
	workload         *Workload
	client           *loopClient
	profile          *chatProfile
	userPrefixTokens int // common prefix of the client's conversations, in tokens
	id               uint64
	turns            int
}

func (t *chatSession) beginConversation() *Request {
	t.id, t.turns = t.client.nextID(), t.profile.drawTurns(t.client.rng)
	prompt := make([]Piece, 0, 2*t.turns+3)
	add := func(id uint64, tokens int) {
		if tokens > 0 {
			prompt = append(prompt, Piece{ID: id, Tokens: tokens})
		}
	}
	add(mixBits(0xc4a7), t.profile.commonTokens)
	if t.profile.userPrefix.Median > 0 {
		add(mixBits(t.client.id), t.userPrefixTokens)
	}
	if t.profile.systemTokens != nil {
		add(mixBits(t.id), t.profile.systemTokens(t.client.rng))
	}
	return t.askQuestion(prompt, 0)
}

// askQuestion makes the next request of a conversation. All its prompts share memory: each is a prefix of the next.
func (t *chatSession) askQuestion(so []Piece, turn int) *Request {
	prompt := append(so, Piece{ID: mixBits(t.id ^ mixBits(uint64(2*turn+1))), Tokens: t.profile.question.drawLength(t.client.rng)})
	return t.client.makeRequest(t.workload, t, t.id, turn, prompt, t.profile.answer.drawLength(t.client.rng), mixBits(t.id^mixBits(uint64(2*turn+2))))
}

func (t *chatSession) pushNext(r *Request, push func(time.Duration, *Request)) {
	think := t.workload.capThinkTime(t.profile.drawThinkTime(t.client.rng))
	if turn := int(r.Turn) + 1; turn < t.turns {
		push(think, t.askQuestion(append(r.Prompt, Piece{ID: r.Answer, Tokens: r.Output}), turn))
		return
	}
	push(think, t.beginConversation())
}

// openChats is short chats: on average over all pairs, 19 % of a prompt equals another of the same user, and 2.5 %
// another user's (as measured on public chats by SkyWalker's authors, whose program ends answers at 512 tokens).
func (w *Workload) openChats() (RootSource, error) {
	return w.newChatLoop(&chatProfile{
		commonTokens: 6, userPrefix: LengthDist{Median: 40, P90: 100, Max: 400},
		question: LengthDist{Median: 200, P90: 700, Max: 2000}, answer: LengthDist{Median: 220, P90: 500, Max: 512},
		drawTurns:     func(rng *rand.Rand) int { return 1 + min(int(rng.ExpFloat64()*2), 11) },
		drawThinkTime: exponentialPause(2 * time.Second),
	}, []int{40, 30, 30}), nil
}

// openCoding is the code-generation workload of the catalogue: every conversation has its own body of code of 3,000
// to 100,000 tokens (mean 55,000), and 2 to 20 turns (mean 6) of 1,500 tokens in and 800 out.
func (w *Workload) openCoding() (RootSource, error) {
	return w.newChatLoop(&chatProfile{
		systemTokens: func(rng *rand.Rand) int { return 3000 + int(97_000*math.Pow(rng.Float64(), 0.8654)) },
		question:     LengthDist{Median: 1500}, answer: LengthDist{Median: 800},
		drawTurns:     func(rng *rand.Rand) int { return 2 + min(int(rng.ExpFloat64()*4.65), 18) },
		drawThinkTime: exponentialPause(2 * time.Second),
	}, []int{30}), nil
}

func exponentialPause(mean time.Duration) func(*rand.Rand) time.Duration {
	return func(rng *rand.Rand) time.Duration { return time.Duration(rng.ExpFloat64() * float64(mean)) }
}

// newClosedLoop starts the workload's clients, the given number in each region, each with the request that first
// makes.
func (w *Workload) newClosedLoop(number []int, first func(c *loopClient) *Request) RootSource {
	l := &closedLoop{}
	for region := range w.Regions {
		n := number[min(region, len(number)-1)]
		if len(w.Clients) > 0 {
			n = 0
			if region < len(w.Clients) {
				n = w.Clients[region]
			}
		}
		for i := range n {
			id := mixBits(w.Seed ^ mixBits(uint64(region)<<32|uint64(i)|1<<57))
			c := &loopClient{id: id, number: len(l.roots), region: int32(region), rng: rand.New(rand.NewPCG(id, 0xc11e))}
			r := first(c)
			r.At = time.Duration(c.rng.Float64() * float64(max(clientStagger, w.Every)))
			r.Tenant = int32(c.number)
			l.roots = append(l.roots, r)
		}
	}
	slices.SortStableFunc(l.roots, func(a, b *Request) int { return cmp.Compare(a.At, b.At) })
	return l
}
