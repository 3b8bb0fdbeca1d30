package gpu

import (
	"encoding/binary"
	"encoding/json"
	"errors"

	"github.com/cespare/xxhash/v2"
)

// bytesPerToken is the stand-in's tokeniser.
const bytesPerToken = 4

// prompt is what a request's input comes to.
type prompt struct {
	tokens int
	prefix []uint64 // chained hash of each full block
	key    uint64   // hash of all of it
	base   uint64   // hash of all but the final message, where that is to be continued
	said   string   // the final message then, or a completion's whole prompt
	bases  []uint64 // of a completion's prompt: its hash at each token before its end, the longest first
}

// hasher reads a prompt's content and cuts it into blocks. Roles and boundaries change the hash but are no tokens.
type hasher struct {
	digest *xxhash.Digest
	bytes  int
	prefix []uint64
}

const blockBytes = BlockTokens * bytesPerToken

func newHasher() *hasher { return &hasher{digest: xxhash.New()} }

// mark separates pieces of content, so that the same text in another role is another prompt.
func (h *hasher) mark(label string) {
	h.digest.WriteString("\x00")
	h.digest.WriteString(label)
	h.digest.WriteString("\x00")
}

func (h *hasher) write(s string) {
	for len(s) > 0 {
		n := min(len(s), blockBytes-h.bytes%blockBytes)
		h.digest.WriteString(s[:n])
		h.bytes += n
		s = s[n:]
		if h.bytes%blockBytes == 0 {
			h.prefix = append(h.prefix, h.digest.Sum64())
		}
	}
}

func (h *hasher) sum() (prompt, error) {
	if h.bytes == 0 {
		return prompt{}, errors.New("the prompt is empty")
	}
	return prompt{
		tokens: (h.bytes + bytesPerToken - 1) / bytesPerToken,
		prefix: h.prefix,
		key:    h.digest.Sum64(),
	}, nil
}

func (b *body) read(k kind) (prompt, error) {
	if k != completion {
		return readMessages(b.turns(k), b.ContinueFinalMessage)
	}
	return readPrompt(b.Prompt)
}

func readMessages(list []message, continued bool) (prompt, error) {
	if len(list) == 0 {
		return prompt{}, errors.New("messages: at least one is needed")
	}
	h := newHasher()
	var base uint64
	for i, m := range list {
		if i == len(list)-1 {
			base = h.digest.Sum64()
		}
		h.mark(m.Role)
		if err := h.content(m.Content); err != nil {
			return prompt{}, err
		}
	}
	p, err := h.sum()
	if continued {
		last := list[len(list)-1]
		if last.Role != "assistant" || json.Unmarshal(last.Content, &p.said) != nil {
			return prompt{}, errors.New("continue_final_message: the final message must be the assistant's, and a text")
		}
		p.base = base
	}
	return p, err
}

// content takes a string or a list of text parts.
func (h *hasher) content(raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		h.write(text)
		return nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return errors.New("messages: content must be a string or a list of parts")
	}
	for _, p := range parts {
		if p.Type != "text" {
			return errors.New("messages: only text parts are supported")
		}
		h.write(p.Text)
	}
	return nil
}

// readPrompt takes a string, a list of one string, or a list of token ids.
func readPrompt(raw json.RawMessage) (prompt, error) {
	h := newHasher()
	var text string
	var texts []string
	var ids []int32
	switch {
	case len(raw) == 0:
		return prompt{}, errors.New("prompt: is missing")
	case json.Unmarshal(raw, &text) == nil:
		return continuable(h, text)
	case json.Unmarshal(raw, &ids) == nil:
		buf := make([]byte, bytesPerToken)
		for _, id := range ids {
			binary.LittleEndian.PutUint32(buf, uint32(id))
			h.write(string(buf))
		}
	case json.Unmarshal(raw, &texts) == nil && len(texts) == 1:
		h.write(texts[0])
	default:
		return prompt{}, errors.New("prompt: must be one string or one list of token ids")
	}
	return h.sum()
}

// continuable reads a completion's prompt, and notes where an answer of ours to a shorter one may begin in it: nothing
// but the text tells.
func continuable(h *hasher, text string) (prompt, error) {
	tail := len(text)
	for tail > bytesPerToken && isWord(text[tail-bytesPerToken:tail]) {
		tail -= bytesPerToken
	}
	h.write(text[:tail])
	var bases []uint64
	for i := tail; i < len(text); i += bytesPerToken {
		bases = append(bases, h.digest.Sum64())
		h.write(text[i : i+bytesPerToken])
	}
	p, err := h.sum()
	p.said, p.bases = text, bases
	return p, err
}
