package load

import "strconv"

// vocabulary is words of three letters: each with its space is about one token, and four bytes.
const vocabulary = "and any arm ask bay bed big bit box boy bus cap car cat cow cup cut day dog dry ear eat egg end eye fan far fig fin fly fog for fun gap gas gem hat hen her his ice ink jam jar joy key kit lab law leg let lip log low map mud net new now nut oak odd oil old one "

const wordBytes = 4

// appendPiece appends a piece's text: the same for the same ID, and a longer piece begins with the shorter one.
func appendPiece(dst []byte, p Piece) []byte {
	x := p.ID
	for range p.Tokens {
		x = mixBits(x)
		at := int(x%uint64(len(vocabulary)/wordBytes)) * wordBytes
		dst = append(dst, vocabulary[at:at+wordBytes]...)
	}
	return dst
}

// AppendText appends the text of a prompt that is made of these pieces, as in a request's body.
func AppendText(dst []byte, prompt []Piece) []byte {
	for _, p := range prompt {
		dst = appendPiece(dst, p)
	}
	return dst
}

// appendBody encodes the request. Outputs have exactly the requested length, as in benchmarks of engines.
func (g *Generator) appendBody(a *Arrival, model string) []byte {
	b := make([]byte, 0, a.PromptTokens()*wordBytes+256)
	b = append(b, `{"model":`...)
	b = strconv.AppendQuote(b, model)
	if g.isChat {
		b = append(b, `,"messages":[{"role":"user","content":"`...)
	} else {
		b = append(b, `,"prompt":"`...)
	}
	b = append(AppendText(b, a.Prompt), '"')
	if g.isChat {
		b = append(b, "}]"...)
	}
	b = append(b, `,"max_tokens":`...)
	b = strconv.AppendInt(b, int64(a.Output), 10)
	b = append(b, `,"ignore_eos":true`...)
	if g.cfg.Stream {
		b = append(b, `,"stream":true,"stream_options":{"include_usage":true}`...)
	}
	return append(b, '}')
}
