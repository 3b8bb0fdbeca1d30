package health

import "bytes"

// broken are the marks of an answer from a worker whose GPU or engine is gone, and exhausted those of one whose memory
// ran out, in lower case.
var (
	broken = [...][]byte{
		[]byte("cuda error"), []byte("device-side assert"), []byte("nccl error"), []byte("engine core"), []byte("enginedeaderror"),
		[]byte("uncorrectable ecc"), []byte("illegal memory access"), []byte("hip error"),
	}
	exhausted = [...][]byte{
		[]byte("cuda out of memory"), []byte("outofmemoryerror"), []byte("cuda error: out of memory"), []byte("hip out of memory"),
	}
)

// Classify tells from an error answer what it says of the worker. ok is false when it says nothing: the answer is the
// request's own fault or an ordinary refusal. Only the first 4 KiB of the body are looked at.
func Classify(status int, body []byte) (k Kind, ok bool) {
	if status < 500 {
		return 0, false
	}
	low := bytes.ToLower(body[:min(len(body), 4096)])
	switch {
	case anyIn(low, exhausted[:]):
		return OOM, true
	case anyIn(low, broken[:]):
		return Broken, true
	case status == 503 || status == 529:
		return 0, false
	}
	return Soft, true
}

func anyIn(text []byte, marks [][]byte) bool {
	for _, m := range marks {
		if bytes.Contains(text, m) {
			return true
		}
	}
	return false
}
