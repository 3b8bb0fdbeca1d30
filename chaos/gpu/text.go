package gpu

// words are the stand-in's vocabulary: each with the space before it is one token by its own tokeniser, so that an answer sent
// back as part of a prompt counts as many tokens as it had.
const words = " and any arm ask bay bed big bit box boy bus cap car cat cow cup cut day dog dry ear eat egg end eye fan far fig fin fly fog for fun gap gas gem hat hen her his ice ink jam jar joy key kit lab law leg let lip log low map mud net new now nut oak odd oil old one"

// vocabulary is how many words there are.
const vocabulary = len(words) / bytesPerToken

// word returns the i-th token of the answer with this key.
func word(key uint64, i int) string {
	at := int(mix(key+uint64(i)) % uint64(vocabulary) * bytesPerToken)
	return words[at : at+bytesPerToken]
}

// appendText adds n tokens of the answer from one on.
func appendText(dst []byte, key uint64, from, n int) []byte {
	for i := range n {
		dst = append(dst, word(key, from+i)...)
	}
	return dst
}

// said is how many tokens of the answer with this key a text is the beginning of: all of the text, or none of it.
func said(key uint64, text string) int {
	n := len(text) / bytesPerToken
	if len(text)%bytesPerToken != 0 {
		return 0
	}
	for i := n - 1; i >= 0; i-- {
		if text[i*bytesPerToken:(i+1)*bytesPerToken] != word(key, i) {
			return 0
		}
	}
	return n
}

// isWord reports whether a token is one of ours.
func isWord(token string) bool {
	for i := 0; i < len(words); i += bytesPerToken {
		if words[i:i+bytesPerToken] == token {
			return true
		}
	}
	return false
}
