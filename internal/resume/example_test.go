package resume_test

import (
	"fmt"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/resume"
)

// A chat that was cut continues as its final, unfinished assistant message.
func ExampleResumableRequest_ContinuationBody() {
	body := []byte(`{"model":"m","stream":true,"max_tokens":100,"messages":[{"role":"user","content":"Count to ten"}]}`)
	q, why := resume.ExamineRequest(body, openai.PathChat, false)
	fmt.Printf("%q\n", why)
	fmt.Println(string(q.ContinuationBody(body, []byte("one, two,"), 96)))

	withTools := []byte(`{"model":"m","stream":true,"tools":[{"type":"function"}],"messages":[{"role":"user","content":"Hi"}]}`)
	_, why = resume.ExamineRequest(withTools, openai.PathChat, false)
	fmt.Printf("%q\n", why)
	// Output:
	// ""
	// {"model":"m","stream":true,"max_tokens":96,"messages":[{"role":"user","content":"Count to ten"},{"role":"assistant","content":"one, two,"}],"continue_final_message":true,"add_generation_prompt":false}
	// "tools"
}
