package payments_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"

	"apipay.io/hub/services/payment-api/internal/gateway"
)

// unreachable is a gateway whose calls do not leave while down is set.
type unreachable struct {
	gateway.Gateway
	down atomic.Bool
}

func (g *unreachable) Charge(ctx context.Context, a gateway.Attempt) (gateway.Result, error) {
	if g.down.Load() {
		return gateway.Result{}, gateway.ErrNotExecuted
	}
	return g.Gateway.Charge(ctx, a)
}

func (g *unreachable) Refund(ctx context.Context, a gateway.Attempt) (gateway.Result, error) {
	if g.down.Load() {
		return gateway.Result{}, gateway.ErrNotExecuted
	}
	return g.Gateway.Refund(ctx, a)
}

// holding is a gateway whose answers wait until they are let go; the ledger has decided before.
type holding struct {
	gateway.Gateway
	arrived chan struct{}
	letGo   chan struct{}
}

func newHolding(inner gateway.Gateway) *holding {
	return &holding{Gateway: inner, arrived: make(chan struct{}, 100), letGo: make(chan struct{})}
}

func (g *holding) Charge(ctx context.Context, a gateway.Attempt) (gateway.Result, error) {
	result, err := g.Gateway.Charge(ctx, a)
	g.arrived <- struct{}{}
	<-g.letGo
	return result, err
}

func (g *holding) Refund(ctx context.Context, a gateway.Attempt) (gateway.Result, error) {
	result, err := g.Gateway.Refund(ctx, a)
	g.arrived <- struct{}{}
	<-g.letGo
	return result, err
}

// deaf is a gateway that the request cannot reach any more: its call is lost without the gateway ever seeing it.
type deaf struct{ gateway.Gateway }

func (deaf) Charge(context.Context, gateway.Attempt) (gateway.Result, error) {
	return gateway.Result{}, errors.New("connection reset")
}

func (deaf) Refund(context.Context, gateway.Attempt) (gateway.Result, error) {
	return gateway.Result{}, errors.New("connection reset")
}

// mute is a gateway that does what it is asked and whose answer is lost.
type mute struct{ gateway.Gateway }

func (g mute) Charge(ctx context.Context, a gateway.Attempt) (gateway.Result, error) {
	if _, err := g.Gateway.Charge(ctx, a); err != nil {
		return gateway.Result{}, err
	}
	return gateway.Result{}, errors.New("connection reset")
}

func (g mute) Refund(ctx context.Context, a gateway.Attempt) (gateway.Result, error) {
	if _, err := g.Gateway.Refund(ctx, a); err != nil {
		return gateway.Result{}, err
	}
	return gateway.Result{}, errors.New("connection reset")
}

// panicking is a connector with a fault, after it has sent.
type panicking struct{ gateway.Gateway }

func (g panicking) Charge(ctx context.Context, a gateway.Attempt) (gateway.Result, error) {
	if _, err := g.Gateway.Charge(ctx, a); err != nil {
		return gateway.Result{}, err
	}
	panic("a fault of the connector")
}

// dying is a process that ends at the gateway: before the call leaves, or after the gateway has decided. The request
// goes on nowhere and writes nothing, as after SIGKILL.
type dying struct {
	gateway.Gateway
	after bool
}

func (g dying) Charge(ctx context.Context, a gateway.Attempt) (gateway.Result, error) {
	if g.after {
		_, _ = g.Gateway.Charge(ctx, a)
	}
	runtime.Goexit()
	return gateway.Result{}, nil
}

func (g dying) Refund(ctx context.Context, a gateway.Attempt) (gateway.Result, error) {
	if g.after {
		_, _ = g.Gateway.Refund(ctx, a)
	}
	runtime.Goexit()
	return gateway.Result{}, nil
}

// late is a gateway whose calls arrive only when they are let go, whatever the caller's deadline.
type late struct {
	gateway.Gateway
	arrived chan struct{}
	letGo   chan struct{}
}

func (g late) Charge(ctx context.Context, a gateway.Attempt) (gateway.Result, error) {
	g.arrived <- struct{}{}
	<-g.letGo
	return g.Gateway.Charge(context.WithoutCancel(ctx), a)
}
