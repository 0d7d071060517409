package payments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/services/payment-api/internal/gateway"
)

// verdict is what T2 writes about an attempt.
type verdict struct {
	status      AttemptStatus
	reference   string
	declineCode string
	message     string
}

// call asks the gateway to do what the attempt says, outside any transaction. It starts only while its deadline lies
// within the lease of T1: later, a reconciler might already have asked the gateway and found nothing.
func (s *Service) call(ctx context.Context, run *run, gw gateway.Gateway, a attempt, chargeReference *string) verdict {
	if time.Since(run.began) > s.config.Lease-s.config.GatewayTimeout {
		return verdict{status: AttemptNotExecuted, message: "The call to the gateway could not begin in time."}
	}
	ctx, span := otel.Tracer(scopeName).Start(ctx, "gateway."+a.Kind, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("gateway", gw.Name())))
	defer span.End()
	ctx, cancel := context.WithTimeout(ctx, s.config.GatewayTimeout)
	defer cancel()
	began := time.Now()
	failpoint(beforeCall)
	result, err := send(ctx, gw, a.call(run.Scope, chargeReference))
	failpoint(gatewayAccepted)
	v := read(result, err)
	if v.status == AttemptUnknown && err != nil {
		s.log.WarnContext(ctx, "gateway.unknown", "gateway", gw.Name(), "kind", a.Kind, "error", err.Error())
	}
	s.metrics.called(ctx, a.Kind, v.status, began)
	span.SetAttributes(attribute.String("outcome", string(v.status)))
	return v
}

// send makes the one call. A connector that panics may have sent before, so that is an unknown outcome, too.
func send(ctx context.Context, gw gateway.Gateway, call gateway.Attempt) (result gateway.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the connector panicked: %v", v)
		}
	}()
	if call.IsRefund() {
		return gw.Refund(ctx, call)
	}
	return gw.Charge(ctx, call)
}

// read judges the answer to a call. Whatever is neither a success, nor a decline, nor a proof that nothing happened,
// is unknown.
func read(result gateway.Result, err error) verdict {
	v := verdict{reference: result.Reference, declineCode: result.DeclineCode, message: result.Message}
	switch {
	case errors.Is(err, gateway.ErrNotExecuted):
		return verdict{status: AttemptNotExecuted, message: "The gateway could not be reached."}
	case err != nil:
		return verdict{status: AttemptUnknown, message: "The gateway did not answer."}
	case result.Outcome == gateway.Succeeded:
		v.status = AttemptSucceeded
	case result.Outcome == gateway.Declined:
		v.status = AttemptDeclined
	case result.Outcome == gateway.Refused:
		v.status = AttemptNotExecuted
	default:
		v.status = AttemptUnknown
	}
	return v
}

// callAndSettle is what follows T1.
func (s *Service) callAndSettle(ctx context.Context, run *run, gw gateway.Gateway, a attempt, chargeReference *string) (answer, error) {
	run.called = true
	v := s.call(ctx, run, gw, a, chargeReference)
	settled, err := s.settlePatiently(ctx, run.Scope, a, v)
	switch {
	case err != nil && v.status == AttemptNotExecuted:
		// That much is true whatever becomes of T2, which only frees the key and the intent.
		s.log.WarnContext(ctx, "attempt.unsettled", "kind", a.Kind, "error", err.Error())
		return answer{}, withIntentID(notExecuted(), a.PaymentIntentID)
	case err != nil:
		return answer{}, withIntentID(unsettled(err), a.PaymentIntentID)
	}
	said, err := s.answerSettled(ctx, run, a, settled)
	if _, isProblem := errors.AsType[*httpapi.Problem](err); err != nil && !isProblem {
		return answer{}, withIntentID(unsettled(err), a.PaymentIntentID)
	}
	return said, err
}
