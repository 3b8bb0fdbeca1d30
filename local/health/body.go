package health

import "bytes"

// fatal are the marks of an answer from a worker whose GPU or engine is gone, in lower case.
var fatal = [...][]byte{
	[]byte("cuda error"), []byte("cuda out of memory"), []byte("outofmemoryerror"), []byte("device-side assert"),
	[]byte("nccl error"), []byte("engine core"), []byte("enginedeaderror"), []byte("uncorrectable ecc"),
	[]byte("illegal memory access"), []byte("hip error"),
}

// Classify tells from an error answer what it says of the worker. ok is false when it says nothing: the answer is the
// request's own fault or an ordinary refusal. Only the first 4 KiB of the body are looked at.
func Classify(status int, body []byte) (k Kind, ok bool) {
	if status < 500 {
		return 0, false
	}
	low := bytes.ToLower(body[:min(len(body), 4096)])
	for _, m := range fatal {
		if bytes.Contains(low, m) {
			return Broken, true
		}
	}
	if status == 503 || status == 529 {
		return 0, false
	}
	return Soft, true
}
