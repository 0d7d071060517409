package payments

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/services/payment-api/internal/auth"
	"apipay.io/hub/services/payment-api/internal/idempotency"
)

// The paths as they are fingerprinted and shown in Location: always the canonical text of the ids.
const (
	pathIntents = "/v1/payment-intents"
	pathRefunds = "/v1/refunds"
)

func intentPath(intentID uuid.UUID) string {
	return pathIntents + "/" + id.Format(id.PaymentIntent, intentID)
}

// CreatePaymentIntent implements api.Server.
func (s *Service) CreatePaymentIntent(c echo.Context) error {
	scope := auth.FromContext(c).Scope
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	var body createBody
	raw, err := httpapi.Bind(c, &body)
	if err != nil {
		return err
	}
	if err := body.validate(s.config.AmountMin, s.gatewayOf(scope.Livemode)); err != nil {
		return err
	}
	request, err := idempotency.NewRequest(c.Request(), scope, pathIntents, raw)
	if err != nil {
		return err
	}
	answer, err := s.create(detach(c), request, body)
	return reply(c, answer, err)
}

// ConfirmPaymentIntent implements api.Server.
func (s *Service) ConfirmPaymentIntent(c echo.Context) error {
	var body confirmBody
	intentID, request, err := bindAction(c, "/confirm", &body, func() error {
		return body.validate(s.gatewayOf(auth.FromContext(c).Scope.Livemode))
	})
	if err != nil {
		return err
	}
	answer, err := s.confirm(detach(c), request, intentID, body.PaymentMethod)
	return reply(c, answer, err)
}

// CancelPaymentIntent implements api.Server.
func (s *Service) CancelPaymentIntent(c echo.Context) error {
	var body struct{}
	intentID, request, err := bindAction(c, "/cancel", &body, func() error { return nil })
	if err != nil {
		return err
	}
	answer, err := s.cancel(detach(c), request, intentID)
	return reply(c, answer, err)
}

// CreateRefund implements api.Server.
func (s *Service) CreateRefund(c echo.Context) error {
	var body refundBody
	intentID, request, err := bindAction(c, "/refunds", &body, func() error { return body.validate() })
	if err != nil {
		return err
	}
	answer, err := s.refund(detach(c), request, intentID, body)
	return reply(c, answer, err)
}

// bindAction reads a request to do something with one intent. An absent body is {}.
func bindAction[T any](c echo.Context, action string, body *T, validate func() error) (uuid.UUID, idempotency.Request, error) {
	intentID, err := pathID(c, id.PaymentIntent)
	if err != nil {
		return uuid.Nil, idempotency.Request{}, err
	}
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return uuid.Nil, idempotency.Request{}, err
	}
	raw, err := httpapi.Bind(c, body, httpapi.AllowEmpty())
	if err != nil {
		return uuid.Nil, idempotency.Request{}, err
	}
	if err := validate(); err != nil {
		return uuid.Nil, idempotency.Request{}, err
	}
	request, err := idempotency.NewRequest(c.Request(), auth.FromContext(c).Scope, intentPath(intentID)+action, raw)
	return intentID, request, err
}

// pathID reads the id in the path; one that does not parse is as unknown as any other.
func pathID(c echo.Context, prefix id.Prefix) (uuid.UUID, error) {
	parsed, err := id.Parse(prefix, c.Param("id"))
	if err != nil {
		return uuid.Nil, notFound(prefix)
	}
	return parsed, nil
}

func notFound(prefix id.Prefix) *httpapi.Problem {
	name := "payment intent"
	if prefix == id.Refund {
		name = "refund"
	}
	return httpapi.New(httpapi.CodeNotFound, "There is no such "+name+".")
}

// detach is the request's context without its end: a client that hangs up changes nothing, and costs no database
// connection, which pgx closes when a statement is interrupted. Each transaction and the call to the gateway have
// deadlines of their own.
func detach(c echo.Context) context.Context { return context.WithoutCancel(c.Request().Context()) }

// answer is what a money route says: stored bytes, or bytes made just now.
type answer struct {
	idempotency.Response
	replayed bool
}

// headerReplayed marks an answer that was given before.
const headerReplayed = "Idempotent-Replayed"

func reply(c echo.Context, a answer, err error) error {
	if err != nil {
		return err
	}
	h := c.Response().Header()
	contentType := echo.MIMEApplicationJSON
	for name, value := range a.Header {
		if name == echo.HeaderContentType {
			contentType = value
			continue
		}
		h.Set(name, value)
	}
	if a.replayed {
		h.Set(headerReplayed, "true")
	}
	return c.Blob(a.Status, contentType, a.Body)
}

// respond makes an answer of an object. location is "" where nothing was made.
func respond(status int, object any, location string) (idempotency.Response, error) {
	body, err := httpapi.EncodeJSON(object)
	if err != nil {
		return idempotency.Response{}, err
	}
	header := map[string]string{echo.HeaderContentType: echo.MIMEApplicationJSON}
	if location != "" {
		header[echo.HeaderLocation] = location
	}
	return idempotency.Response{Status: status, Header: header, Body: body}, nil
}

// respondProblem makes an answer of a problem that will be stored: with the id and path of the first request.
func (s *Service) respondProblem(p *httpapi.Problem, requestID, path string) (idempotency.Response, error) {
	body, err := p.Complete(s.errorsBaseURL, requestID, path).Encode()
	if err != nil {
		return idempotency.Response{}, err
	}
	header := map[string]string{echo.HeaderContentType: httpapi.MediaTypeProblem}
	for name := range p.Header {
		header[name] = p.Header.Get(name)
	}
	return idempotency.Response{Status: p.Status, Header: header, Body: body}, nil
}

// The problems of the money path.

func declinedProblem(p intent, declineCode, message *string) *httpapi.Problem {
	detail := "The card was declined."
	if message != nil && *message != "" {
		detail = *message
	}
	problem := withIntent(httpapi.New(httpapi.CodeCardDeclined, detail), p)
	if declineCode != nil {
		problem = problem.WithDeclineCode(*declineCode)
	}
	return problem
}

func notExecuted() *httpapi.Problem {
	return gatewayUnavailable("The payment gateway could not be reached; nothing was charged or refunded.")
}

func gatewayUnavailable(detail string) *httpapi.Problem {
	return httpapi.New(httpapi.CodeGatewayUnavailable, detail)
}

// stateProblem refuses what the intent's state does not allow. While a payment is on its way the state will change by
// itself, so the client is told to come back.
func stateProblem(p intent, detail string) *httpapi.Problem {
	problem := withIntent(httpapi.New(httpapi.CodeInvalidState, detail), p)
	if p.Status == Processing {
		problem = problem.WithRetryAfter(time.Second)
	}
	return problem
}

func withIntent(problem *httpapi.Problem, p intent) *httpapi.Problem {
	return withIntentID(problem, p.ID).With("intent_status", string(p.Status))
}

func withIntentID(problem *httpapi.Problem, intentID uuid.UUID) *httpapi.Problem {
	return problem.With("payment_intent", id.Format(id.PaymentIntent, intentID))
}

func refundExceeds() *httpapi.Problem {
	return httpapi.Invalid(httpapi.CodeRefundExceedsRemaining, "/amount",
		"The refund is larger than what is left of the payment; pending refunds count.")
}

// isCreate tells from a key's path whether the confirmation belongs to a create.
func isCreate(path string) bool { return path == pathIntents }

// successStatus is the status of a charge that succeeded, by the path that asked for it.
func successStatus(path string) int {
	if isCreate(path) {
		return http.StatusCreated
	}
	return http.StatusOK
}

// intentLocation is the Location of an answer about the intent, by the path that asked for it.
func intentLocation(path string, intentID uuid.UUID) string {
	if isCreate(path) {
		return intentPath(intentID)
	}
	return ""
}

func refundLocation(refundID uuid.UUID) string {
	return pathRefunds + "/" + id.Format(id.Refund, refundID)
}
