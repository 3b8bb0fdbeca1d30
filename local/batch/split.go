package batch

// Answer is one part's share of an upstream answer, in pieces to be written one after the other. They are views into
// the upstream body and must not be changed.
type Answer [][]byte

// Len is the answer's length in bytes.
func (a Answer) Len() (n int) {
	for _, piece := range a {
		n += len(piece)
	}
	return n
}

// Split shares out the body of a 2xx answer to Merge(parts), one Answer for each part in order. False: the answer does
// not hold exactly one result for each item, and nothing in it can be given to anybody.
func Split(parts []*Part, body []byte) ([]Answer, bool) {
	s := &splitter{parts: parts, body: body}
	if len(parts) == 1 {
		return []Answer{{body}}, true
	}
	for _, p := range parts {
		s.items += p.Items
		s.weight += p.Weight
	}
	read := s.readEmbeddings
	if parts[0].kind == inference {
		read = s.readInfer
	}
	if !read() {
		return nil, false
	}
	return s.write(), true
}

// splitter takes one answer apart.
type splitter struct {
	parts  []*Part
	body   []byte
	items  int
	weight int64
	cuts   []cut // in order of place

	pieces [][]byte // arena that answers are sliced from
	text   []byte   // arena for what is written anew
}

// cut is a span of the answer that each part gets its own of.
type cut struct {
	start, end int
	what       what
	elems      []elem // of an embeddings answer, by index
	rows       []int  // of a tensor: where each row begins and the last ends
	members    []span // of usage: the numbers to share out
}

type what uint8

const (
	cutElems what = iota
	cutUsage
	cutID
	cutShape
	cutData
)

type span struct {
	start, end int
	n          int
	drop       bool // says more than can be shared out
}

// elem is one result of an embeddings answer.
type elem struct{ start, end, index, indexEnd int }

// write makes the answers.
func (s *splitter) write() []Answer {
	s.pieces = make([][]byte, 0, len(s.parts)*(6+3*len(s.cuts))+4*s.items)
	s.text = make([]byte, 0, 16*s.items+96*len(s.parts))
	out := make([]Answer, len(s.parts))
	first, before := 0, int64(0)
	for i, p := range s.parts {
		begin, at := len(s.pieces), 0
		for k := range s.cuts {
			c := &s.cuts[k]
			s.add(s.body[at:c.start])
			s.fill(c, p, first, before)
			at = c.end
		}
		s.add(s.body[at:])
		out[i] = Answer(s.pieces[begin:len(s.pieces):len(s.pieces)])
		first += p.Items
		before += p.Weight
	}
	return out
}

func (s *splitter) add(piece []byte) { s.pieces = append(s.pieces, piece) }

// number adds a number that stands nowhere in the body.
func (s *splitter) number(n int) {
	at := len(s.text)
	s.text = appendInt(s.text, n)
	s.add(s.text[at:len(s.text):len(s.text)])
}

// char and written add text that stands nowhere in the body.
func (s *splitter) char(c byte) {
	s.text = append(s.text, c)
	s.add(s.text[len(s.text)-1 : len(s.text) : len(s.text)])
}

func (s *splitter) written(text string) {
	at := len(s.text)
	s.text = append(s.text, text...)
	s.add(s.text[at:len(s.text):len(s.text)])
}

// fill adds what a part gets in place of a cut. Its items begin with number first, and weigh what follows before.
func (s *splitter) fill(c *cut, p *Part, first int, before int64) {
	switch c.what {
	case cutElems:
		s.elems(c.elems[first : first+p.Items])
	case cutUsage:
		s.usage(c, before, before+p.Weight)
	case cutID:
		for _, h := range p.spans() {
			if h.fill == fillFirst {
				s.add(p.body[h.from:h.to])
			}
		}
	case cutShape:
		s.number(p.Items)
	case cutData:
		s.char('[')
		s.add(s.body[c.rows[2*first]:c.rows[2*(first+p.Items-1)+1]])
		s.char(']')
	}
}
