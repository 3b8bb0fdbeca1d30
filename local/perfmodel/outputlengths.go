package perfmodel

import (
	"math"
	"math/bits"
)

// OutputLengths predicts the length of answers from a histogram for each model, tenant and octave of prompt length.
// Counts are halved regularly, so that old answers lose weight. A histogram with few answers is blended with the next
// wider one: the model's answers to prompts of that length, then all of the model's answers. The number of histograms
// is bounded; the one updated least recently is dropped first.
//
// OutputLengths has one writer and no lock.
type OutputLengths struct {
	maxHistograms int
	byKey         map[lengthKey]int32
	histograms    []lengthHistogram
	newest        int32 // most recent, plus one
	oldest        int32 // least recent, plus one
}

type lengthKey struct {
	model, tenant string
	octave        uint8
}

type lengthHistogram struct {
	key        lengthKey
	prev, next int32 // plus one
	total      uint32
	counts     [lengthBins]uint16
}

const (
	lengthBins       = 72  // a quarter of an octave each, from 1 token to 256 Ki
	lengthMemory     = 256 // answers after which all counts are halved
	lengthMinSamples = 16  // answers at which a histogram outweighs the next wider one

	anyOctave = 255
)

// NewOutputLengths returns an empty predictor of at most so many histograms; each takes about 300 bytes.
func NewOutputLengths(most int) *OutputLengths {
	return &OutputLengths{maxHistograms: max(most, 4), byKey: map[lengthKey]int32{}}
}

// Len returns the number of histograms.
func (l *OutputLengths) Len() int { return len(l.byKey) }

// ObserveOutput adds one finished answer: output tokens to a prompt of so many tokens.
func (l *OutputLengths) ObserveOutput(model, tenant string, prompt, output int64) {
	if output < 0 {
		return
	}
	b := lengthBinOf(output)
	for _, k := range lengthKeysFor(model, tenant, prompt) {
		p := l.touchHistogram(k)
		p.counts[b]++
		if p.total++; p.total >= lengthMemory {
			p.halveCounts()
		}
	}
}

// PredictOutput returns the length in tokens that the given share of such answers, such as 0.8, does not exceed. def is
// the prediction for a model without answers, and weighs as much as one answer afterwards.
func (l *OutputLengths) PredictOutput(model, tenant string, prompt int64, share float64, def int64) int64 {
	share = min(max(share, 0.01), 0.99)
	keys := lengthKeysFor(model, tenant, prompt)
	guess := float64(max(def, 0))
	weight := 1.0
	for i := len(keys) - 1; i >= 0; i-- {
		at, ok := l.byKey[keys[i]]
		if !ok {
			continue
		}
		p := &l.histograms[at]
		guess = p.blendedQuantile(share, guess, weight)
		weight = lengthMinSamples
	}
	return int64(guess)
}

// lengthKeysFor returns the key of a histogram and those of the wider ones it is blended with.
func lengthKeysFor(model, tenant string, prompt int64) [3]lengthKey {
	o := uint8(bits.Len64(uint64(max(prompt, 0))))
	if tenant == "" {
		tenant = "\x00" // distinct from the key of all tenants
	}
	return [3]lengthKey{{model, tenant, o}, {model, "", o}, {model, "", anyOctave}}
}

// blendedQuantile blends the histogram's own quantile with a guess that weighs as much as so many answers.
func (p *lengthHistogram) blendedQuantile(share, guess, weight float64) float64 {
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
			own = lengthBinMax(b)
			break
		}
	}
	n := float64(p.total)
	return (own*n + guess*weight) / (n + weight)
}

func (p *lengthHistogram) halveCounts() {
	p.total = 0
	for b := range p.counts {
		p.counts[b] /= 2
		p.total += uint32(p.counts[b])
	}
}

// touchHistogram returns the histogram of a key as the most recent one, creating it if necessary.
func (l *OutputLengths) touchHistogram(k lengthKey) *lengthHistogram {
	at, ok := l.byKey[k]
	switch {
	case ok:
		l.unlinkHistogram(at)
	case len(l.histograms) < l.maxHistograms:
		at = int32(len(l.histograms))
		l.histograms = append(l.histograms, lengthHistogram{key: k})
		l.byKey[k] = at
	default:
		at = l.oldest - 1
		l.unlinkHistogram(at)
		delete(l.byKey, l.histograms[at].key)
		l.histograms[at] = lengthHistogram{key: k}
		l.byKey[k] = at
	}
	p := &l.histograms[at]
	p.prev, p.next = 0, l.newest
	if l.newest != 0 {
		l.histograms[l.newest-1].prev = at + 1
	}
	l.newest = at + 1
	if l.oldest == 0 {
		l.oldest = l.newest
	}
	return p
}

func (l *OutputLengths) unlinkHistogram(at int32) {
	p := &l.histograms[at]
	if p.prev != 0 {
		l.histograms[p.prev-1].next = p.next
	} else {
		l.newest = p.next
	}
	if p.next != 0 {
		l.histograms[p.next-1].prev = p.prev
	} else {
		l.oldest = p.prev
	}
	p.prev, p.next = 0, 0
}

// lengthBinOf returns the bin of a length: its octave and the two bits after its first.
func lengthBinOf(n int64) int {
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

// lengthBinMax returns the greatest length in a bin.
func lengthBinMax(b int) float64 {
	o, quarter := b/4, b%4
	first := float64(int64(1) << o)
	return max(first, math.Ceil(first*(1+float64(quarter+1)/4)-1))
}
