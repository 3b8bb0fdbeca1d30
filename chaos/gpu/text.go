package gpu

// words are the stand-in's vocabulary: each with its space is one token by its own tokeniser, so that an answer sent
// back as part of a prompt counts as many tokens as it had.
const words = "and any arm ask bay bed big bit box boy bus cap car cat cow cup cut day dog dry ear eat egg end eye fan far fig fin fly fog for fun gap gas gem hat hen her his ice ink jam jar joy key kit lab law leg let lip log low map mud net new now nut oak odd oil old one "

// vocabulary is how many words there are.
const vocabulary = len(words) / bytesPerToken

// word returns the i-th token of the answer with this key.
func word(key uint64, i int) string {
	at := int(mix(key+uint64(i)) % uint64(vocabulary) * bytesPerToken)
	return words[at : at+bytesPerToken]
}

// appendText adds the answer's first n tokens.
func appendText(dst []byte, key uint64, n int) []byte {
	for i := range n {
		dst = append(dst, word(key, i)...)
	}
	return dst
}
