package regional

import (
	"errors"
	"net/http"

	"github.com/spillway-lb/spillway/internal/jwtauth"
	"github.com/spillway-lb/spillway/internal/openai"
)

// tokenError returns what is wrong with a token. This reveals nothing, because the token's content is readable by
// its holder.
func tokenError(err error) *openai.Error {
	return &openai.Error{
		Status: http.StatusUnauthorized, Type: openai.TypeAuthentication, Code: openai.CodeInvalidToken, NoRetry: !errors.Is(err, jwtauth.ErrUnknownKey),
		Message: err.Error(),
	}
}
