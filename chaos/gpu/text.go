package gpu

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
