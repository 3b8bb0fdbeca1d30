package gpu

import (
	"encoding/binary"
	"encoding/json"
	"errors"

	"github.com/cespare/xxhash/v2"
)

// bytesPerToken is the tokenizer of the simulated worker.
const bytesPerToken = 4

// parsedPrompt is the parsed input of a request.
type parsedPrompt struct {
	tokens        int
	blockHashes   []uint64 // chained hash of each full block
	hash          uint64   // hash of all of it
	continuedBase uint64   // hash of all but the final message, if that is to be continued
	continuedText string   // the final message in that case, or a completion's whole prompt
	possibleBases []uint64 // of a completion's prompt: its hash at each token before its end, the longest first
}

// promptHasher hashes a prompt's content in blocks. Roles and boundaries change the hash but are not tokens.
type promptHasher struct {
	digest      *xxhash.Digest
	bytesRead   int
	blockHashes []uint64
}

const blockBytes = BlockTokens * bytesPerToken

func newPromptHasher() *promptHasher { return &promptHasher{digest: xxhash.New()} }

// markBoundary separates pieces of content, so that the same text in another role is another prompt.
func (h *promptHasher) markBoundary(label string) {
	h.digest.WriteString("\x00")
	h.digest.WriteString(label)
	h.digest.WriteString("\x00")
}

func (h *promptHasher) writeText(s string) {
	for len(s) > 0 {
		n := min(len(s), blockBytes-h.bytesRead%blockBytes)
		h.digest.WriteString(s[:n])
		h.bytesRead += n
		s = s[n:]
		if h.bytesRead%blockBytes == 0 {
			h.blockHashes = append(h.blockHashes, h.digest.Sum64())
		}
	}
}

func (h *promptHasher) finishPrompt() (parsedPrompt, error) {
	if h.bytesRead == 0 {
		return parsedPrompt{}, errors.New("the prompt is empty")
	}
	return parsedPrompt{
		tokens:      (h.bytesRead + bytesPerToken - 1) / bytesPerToken,
		blockHashes: h.blockHashes,
		hash:        h.digest.Sum64(),
	}, nil
}

func (b *requestBody) readInput(k endpointKind) (parsedPrompt, error) {
	if k != kindCompletion {
		return readMessages(b.allMessages(k), b.ContinueFinalMessage)
	}
	return readPrompt(b.Prompt)
}

func readMessages(list []chatMessage, continued bool) (parsedPrompt, error) {
	if len(list) == 0 {
		return parsedPrompt{}, errors.New("messages: at least one is needed")
	}
	h := newPromptHasher()
	var base uint64
	for i, m := range list {
		if i == len(list)-1 {
			base = h.digest.Sum64()
		}
		h.markBoundary(m.Role)
		if err := h.writeContent(m.Content); err != nil {
			return parsedPrompt{}, err
		}
	}
	p, err := h.finishPrompt()
	if continued {
		last := list[len(list)-1]
		if last.Role != "assistant" || json.Unmarshal(last.Content, &p.continuedText) != nil {
			return parsedPrompt{}, errors.New("continue_final_message: the final message must be the assistant's, and a text")
		}
		p.continuedBase = base
	}
	return p, err
}

// writeContent reads a string or a list of text parts.
func (h *promptHasher) writeContent(raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		h.writeText(text)
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
		h.writeText(p.Text)
	}
	return nil
}

// readPrompt reads a string, a list of one string, or a list of token ids.
func readPrompt(raw json.RawMessage) (parsedPrompt, error) {
	h := newPromptHasher()
	var text string
	var texts []string
	var ids []int32
	switch {
	case len(raw) == 0:
		return parsedPrompt{}, errors.New("prompt: is missing")
	case json.Unmarshal(raw, &text) == nil:
		return readContinuable(h, text)
	case json.Unmarshal(raw, &ids) == nil:
		buf := make([]byte, bytesPerToken)
		for _, id := range ids {
			binary.LittleEndian.PutUint32(buf, uint32(id))
			h.writeText(string(buf))
		}
	case json.Unmarshal(raw, &texts) == nil && len(texts) == 1:
		h.writeText(texts[0])
	default:
		return parsedPrompt{}, errors.New("prompt: must be one string or one list of token ids")
	}
	return h.finishPrompt()
}

// readContinuable reads a completion's prompt, and records where an answer to a shorter prompt may begin in it: only
// the text shows that.
func readContinuable(h *promptHasher, text string) (parsedPrompt, error) {
	tail := len(text)
	for tail > bytesPerToken && isVocabularyWord(text[tail-bytesPerToken:tail]) {
		tail -= bytesPerToken
	}
	h.writeText(text[:tail])
	var bases []uint64
	for i := tail; i < len(text); i += bytesPerToken {
		bases = append(bases, h.digest.Sum64())
		h.writeText(text[i : i+bytesPerToken])
	}
	p, err := h.finishPrompt()
	p.continuedText, p.possibleBases = text, bases
	return p, err
}

// vocabularyText is the vocabulary: each word with the space before it is one token by this package's tokenizer, so
// that an answer that is part of a later prompt counts as many tokens as it had.
const vocabularyText = " and any arm ask bay bed big bit box boy bus cap car cat cow cup cut day dog dry ear eat egg end eye fan far fig fin fly fog for fun gap gas gem hat hen her his ice ink jam jar joy key kit lab law leg let lip log low map mud net new now nut oak odd oil old one"

// vocabularySize is the number of words.
const vocabularySize = len(vocabularyText) / bytesPerToken

// answerToken returns the i-th token of the answer with this key.
func answerToken(key uint64, i int) string {
	at := int(splitMix64(key+uint64(i)) % uint64(vocabularySize) * bytesPerToken)
	return vocabularyText[at : at+bytesPerToken]
}

// appendText appends n tokens of the answer, starting at from.
func appendText(dst []byte, key uint64, from, n int) []byte {
	for i := range n {
		dst = append(dst, answerToken(key, from+i)...)
	}
	return dst
}

// countAnswerTokens is how many tokens of the answer with this key a text is the beginning of: all of the text, or
// none of it.
func countAnswerTokens(key uint64, text string) int {
	n := len(text) / bytesPerToken
	if len(text)%bytesPerToken != 0 {
		return 0
	}
	for i := n - 1; i >= 0; i-- {
		if text[i*bytesPerToken:(i+1)*bytesPerToken] != answerToken(key, i) {
			return 0
		}
	}
	return n
}

// isVocabularyWord reports whether a token is a word of the vocabulary.
func isVocabularyWord(token string) bool {
	for i := 0; i < len(vocabularyText); i += bytesPerToken {
		if vocabularyText[i:i+bytesPerToken] == token {
			return true
		}
	}
	return false
}
