package pick

// Onward is how much of what follows the longest known beginning of a prompt is cached too where that beginning is. The index
// knows what was sent; an engine also keeps what it answered, and the next turn of a conversation goes on with that. Who
// takes such a turn for as much work as it looks believes workers faster than they are, and a miss cheaper than it is.
type Onward struct {
	parts [2]onward // by whether one worker alone holds the beginning
}

type onward struct {
	part float64
	n    int
}

const (
	// onwardMost is about how many answers count.
	onwardMost = 100
	// onwardLeast is how many tokens must follow for them to tell anything.
	onwardLeast = 32
)

// Learn takes what an answer says of a prompt of so many tokens that was sent where most of it was known: how much was known,
// and how much was cached. What was not cached though it was known says nothing of what follows.
func (o *Onward) Learn(alone bool, known, cached, prompt int64) {
	rest := prompt - known
	if known <= 0 || rest < onwardLeast || cached < known-known/10 {
		return
	}
	p := &o.parts[index(alone)]
	p.n = min(p.n+1, onwardMost)
	p.part += (max(0, min(float64(cached-known)/float64(rest), 1)) - p.part) / float64(p.n)
}

// Part of what follows that is expected to be cached, 0..1.
func (o *Onward) Part(alone bool) float64 {
	if o == nil {
		return 0
	}
	return o.parts[index(alone)].part
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// further credits the workers that hold the longest known beginning of the prompt with what they are expected to have of the
// rest.
func (v *View) further() {
	n := min(v.Index.deepest, MaxBlocks)
	v.beyond = int32(v.Onward.Part(v.Index.alone) * float64(max(v.prompt-1-int64(v.worth[n]), 0)))
	v.worth[n] += v.beyond
}

// furthest says whether a worker holds the longest known beginning of the prompt.
func (v *View) furthest(id int32) bool {
	return v.known && min(v.Index.matched(id), MaxBlocks) == min(v.Index.deepest, MaxBlocks)
}
