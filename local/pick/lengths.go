package pick

import (
	"math"
	"math/bits"
)

// Lengths predicts how long answers will be, from a histogram for each model, tenant and octave of prompt length that
// forgets by halves. A place with little evidence leans on the next wider one: the model's answers to prompts of that
// length, then all of the model's answers. The number of places is bounded;
// the one that learned something longest ago goes first.
//
// Lengths has one writer and no lock.
type Lengths struct {
	most   int
	at     map[lengthsKey]int32
	places []lengthsPlace
	head   int32 // most recent, plus one
	tail   int32 // least recent, plus one
}

type lengthsKey struct {
	model, tenant string
	octave        uint8
}

type lengthsPlace struct {
	key        lengthsKey
	prev, next int32 // plus one
	total      uint32
	counts     [lengthBins]uint16
}

const (
	lengthBins    = 72  // a quarter of an octave each, from 1 token to 256 Ki
	lengthsMemory = 256 // answers after which all counts are halved
	lengthsEnough = 16  // answers that outweigh the next wider place

	anyOctave = 255
)

// NewLengths returns an empty predictor of at most so many places; each takes about 300 bytes.
func NewLengths(most int) *Lengths {
	return &Lengths{most: max(most, 4), at: map[lengthsKey]int32{}}
}

// Len is the number of places.
func (l *Lengths) Len() int { return len(l.at) }

// Observe takes in one finished answer: output tokens to a prompt of so many.
func (l *Lengths) Observe(model, tenant string, prompt, output int64) {
	if output < 0 {
		return
	}
	b := lengthBin(output)
	for _, k := range lengthsKeys(model, tenant, prompt) {
		p := l.place(k)
		p.counts[b]++
		if p.total++; p.total >= lengthsMemory {
			p.halve()
		}
	}
}

// Predict is the length that the given share of such answers, such as 0.8, do not exceed; def is believed of a model that has
// answered nothing, and counts as one answer where it has.
func (l *Lengths) Predict(model, tenant string, prompt int64, share float64, def int64) int64 {
	share = min(max(share, 0.01), 0.99)
	keys := lengthsKeys(model, tenant, prompt)
	guess := float64(max(def, 0))
	weight := 1.0
	for i := len(keys) - 1; i >= 0; i-- {
		at, ok := l.at[keys[i]]
		if !ok {
			continue
		}
		p := &l.places[at]
		guess = p.quantile(share, guess, weight)
		weight = lengthsEnough
	}
	return int64(guess)
}

// lengthsKeys are a place and the wider ones that it leans on.
func lengthsKeys(model, tenant string, prompt int64) [3]lengthsKey {
	o := uint8(bits.Len64(uint64(max(prompt, 0))))
	if tenant == "" {
		tenant = "\x00" // apart from the place of all tenants
	}
	return [3]lengthsKey{{model, tenant, o}, {model, "", o}, {model, "", anyOctave}}
}

// quantile mixes the place's own quantile with a guess that weighs as much as so many answers.
func (p *lengthsPlace) quantile(share, guess, weight float64) float64 {
	if p.total == 0 {
		return guess
	}
	left := share * float64(p.total)
	own := 0.0
	for b, n := range p.counts {
		if n == 0 {
			continue
		}
		if left -= float64(n); left <= 0 {
			own = lengthEnd(b)
			break
		}
	}
	n := float64(p.total)
	return (own*n + guess*weight) / (n + weight)
}

func (p *lengthsPlace) halve() {
	p.total = 0
	for b := range p.counts {
		p.counts[b] /= 2
		p.total += uint32(p.counts[b])
	}
}

// place returns a key's place, made when there is none, as the most recent.
func (l *Lengths) place(k lengthsKey) *lengthsPlace {
	at, ok := l.at[k]
	switch {
	case ok:
		l.unlink(at)
	case len(l.places) < l.most:
		at = int32(len(l.places))
		l.places = append(l.places, lengthsPlace{key: k})
		l.at[k] = at
	default:
		at = l.tail - 1
		l.unlink(at)
		delete(l.at, l.places[at].key)
		l.places[at] = lengthsPlace{key: k}
		l.at[k] = at
	}
	p := &l.places[at]
	p.prev, p.next = 0, l.head
	if l.head != 0 {
		l.places[l.head-1].prev = at + 1
	}
	l.head = at + 1
	if l.tail == 0 {
		l.tail = l.head
	}
	return p
}

func (l *Lengths) unlink(at int32) {
	p := &l.places[at]
	if p.prev != 0 {
		l.places[p.prev-1].next = p.next
	} else {
		l.head = p.next
	}
	if p.next != 0 {
		l.places[p.next-1].prev = p.prev
	} else {
		l.tail = p.prev
	}
	p.prev, p.next = 0, 0
}

// lengthBin is the bin of a length: the octave and the two bits after its first.
func lengthBin(n int64) int {
	n = max(n, 1)
	o := bits.Len64(uint64(n)) - 1
	var quarter int
	if o >= 2 {
		quarter = int(n>>(o-2)) & 3
	} else {
		quarter = int(n<<(2-o)) & 3
	}
	return min(4*o+quarter, lengthBins-1)
}

// lengthEnd is the greatest length in a bin.
func lengthEnd(b int) float64 {
	o, quarter := b/4, b%4
	first := float64(int64(1) << o)
	return max(first, math.Ceil(first*(1+float64(quarter+1)/4)-1))
}
