package dispatch

import (
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// The priorities of deliveries, as the database has them.
const (
	firstAttempts = 0
	retries       = 1
)

const (
	// asksPerClaim bounds the cost of one claim, however many endpoints have work.
	asksPerClaim = 64
	// recheck is how soon an endpoint that another dispatcher was claiming for, or filled, is asked for again.
	recheck = 15 * time.Millisecond
	// hold is how long an endpoint rests that cannot be sent to for now. Short, since what ends the reason is not told to us.
	hold = time.Second
	// longestHold is for a breaker whose next probe is known: its end is not told either, but comes from another's probe.
	longestHold = 5 * time.Second
)

// worklist is what this process knows of where work is: which endpoints have deliveries due, per tenant. It decides who is
// asked for next, and the claim decides what there really is; so it may be wrong for a moment and is never trusted.
//
// Fairness: tenants take turns slot by slot, first attempts go before retries, and nobody takes more slots than are left
// over for the others, so that even many hanging endpoints of one tenant leave room.
type worklist struct {
	mu        sync.Mutex
	cap       int
	free      int
	tenants   []*tenantWork
	next      int
	endpoints map[uuid.UUID]*endpointWork
	// retriesInHand are the slots that retries hold.
	retriesInHand int
	wake          chan struct{}
}

type tenantWork struct {
	id        uuid.UUID
	endpoints []*endpointWork
	// next is the place in endpoints after the one that was served last.
	next   int
	inHand int
	// ready are the endpoints that may be asked for in this pick, in turn.
	ready []*endpointWork
}

type endpointWork struct {
	id     uuid.UUID
	tenant *tenantWork
	// due is when the earliest delivery known of each priority is due, by the process's clock; nil for none known.
	due [2]*time.Time
	// added counts what was added of each priority, to notice what came during a claim.
	added   [2]int
	blocked time.Time
	// inHand are deliveries from when they are asked for until their results are recorded, as the cap counts them.
	inHand int
	place  int
	asked  *ask
	// isClaiming: a turn asks for it.
	isClaiming bool
}

// ask is what a claim asks for.
type ask struct {
	endpointID uuid.UUID
	priority   int
	want       int
	added      int
}

// verdict is what a claim found out about an ask.
type verdict struct {
	got int
	// room is how many the claim was allowed to take.
	room int
	// busy: another dispatcher was claiming for the endpoint.
	busy bool
	// held: disabled, deleted or behind its breaker, for the time given at least.
	held time.Duration
}

func newWorklist(endpointCap, slots int) *worklist {
	return &worklist{cap: endpointCap, free: slots, endpoints: map[uuid.UUID]*endpointWork{}, wake: make(chan struct{}, 1)}
}

// add says that an endpoint has a delivery due at the time; the zero time is now.
func (w *worklist) add(endpointID, tenantID uuid.UUID, priority int, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.endpoint(endpointID, tenantID)
	e.added[priority]++
	if e.due[priority] == nil || at.Before(*e.due[priority]) {
		e.due[priority] = &at
		w.signal()
	}
}

func (w *worklist) endpoint(endpointID, tenantID uuid.UUID) *endpointWork {
	if e := w.endpoints[endpointID]; e != nil {
		return e
	}
	var tenant *tenantWork
	if i := slices.IndexFunc(w.tenants, func(t *tenantWork) bool { return t.id == tenantID }); i >= 0 {
		tenant = w.tenants[i]
	} else {
		tenant = &tenantWork{id: tenantID}
		w.tenants = append(w.tenants, tenant)
	}
	e := &endpointWork{id: endpointID, tenant: tenant}
	tenant.endpoints = append(tenant.endpoints, e)
	w.endpoints[endpointID] = e
	return e
}

func (w *worklist) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// pick takes slots for what is to be claimed now, and answers how long nothing else will be due. It looks at every endpoint
// with work once, however many of them cannot be asked for.
func (w *worklist) pick(now time.Time) (asks []*ask, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgetIdle(now)
	for priority := firstAttempts; priority <= retries; priority++ {
		w.survey(now, priority)
		for w.free > 0 && w.round(priority, &asks) {
		}
	}
	for _, a := range asks {
		w.endpoints[a.endpointID].asked = nil
	}
	return asks, w.nextDue(now)
}

// survey lists, per tenant, the endpoints that may be asked for, the one whose turn it is first.
func (w *worklist) survey(now time.Time, priority int) {
	for _, tenant := range w.tenants {
		tenant.ready = tenant.ready[:0]
		n := len(tenant.endpoints)
		for i := range n {
			e := tenant.endpoints[(tenant.next+i)%n]
			e.place = (tenant.next + i) % n
			if e.due[priority] == nil || e.due[priority].After(now) || e.blocked.After(now) || e.isClaiming {
				continue
			}
			tenant.ready = append(tenant.ready, e)
		}
	}
}

// round gives each tenant one slot at most, and reports whether any took one.
func (w *worklist) round(priority int, asks *[]*ask) bool {
	gave := false
	for range len(w.tenants) {
		tenant := w.tenants[w.next%len(w.tenants)]
		w.next = (w.next + 1) % len(w.tenants)
		if w.free <= 0 || tenant.inHand >= w.free || priority == retries && w.retriesInHand >= w.free {
			continue
		}
		e := tenant.choose(w.cap, len(*asks) < asksPerClaim)
		if e == nil {
			continue
		}
		if e.asked == nil {
			e.isClaiming = true
			e.asked = &ask{endpointID: e.id, priority: priority, added: e.added[priority]}
			*asks = append(*asks, e.asked)
		}
		e.asked.want++
		w.take(e, priority, 1)
		gave = true
	}
	return gave
}

// choose takes the tenant's ready endpoints in turn. more says that further endpoints may be asked for.
func (t *tenantWork) choose(endpointCap int, more bool) *endpointWork {
	for len(t.ready) > 0 {
		e := t.ready[0]
		t.ready = t.ready[1:]
		if e.inHand >= endpointCap || e.asked == nil && !more {
			continue
		}
		t.ready = append(t.ready, e)
		t.next = (e.place + 1) % len(t.endpoints)
		return e
	}
	return nil
}

// take moves n slots to an endpoint, or back for a negative n.
func (w *worklist) take(e *endpointWork, priority, n int) {
	w.free -= n
	e.inHand += n
	e.tenant.inHand += n
	if priority == retries {
		w.retriesInHand += n
	}
}

// settle gives back the slots that a claim did not use, and notes what it found.
func (w *worklist) settle(a *ask, v verdict, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.endpoints[a.endpointID]
	e.isClaiming = false
	w.take(e, a.priority, v.got-a.want)
	switch {
	case v.held > 0:
		// The discovery says again that something waits, for as long as it does.
		e.due, e.blocked = [2]*time.Time{}, now.Add(v.held)
	case v.busy, v.got == v.room && v.room < a.want:
		e.blocked = now.Add(recheck)
	case v.got < a.want && e.added[a.priority] == a.added:
		// Nothing more is due; what will be later is found by the discovery.
		e.due[a.priority] = nil
	}
	w.signal()
}

// release frees the slot of a delivery whose result is being recorded, or was.
func (w *worklist) release(c *claimed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.take(w.endpoints[c.EndpointID], c.Priority, -1)
	w.signal()
}

// retake undoes release for a result that could not be recorded. It may leave fewer than no slots free for a moment.
func (w *worklist) retake(c *claimed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.take(w.endpoint(c.EndpointID, c.TenantID), c.Priority, 1)
}

// rest keeps an endpoint from being asked for, for a while.
func (w *worklist) rest(endpointID uuid.UUID, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.endpoints[endpointID]; e != nil {
		e.blocked = until
	}
}

// inHand is the number of slots taken.
func (w *worklist) inHand(slots int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slots - w.free
}

const longWait = time.Second

func (w *worklist) nextDue(now time.Time) time.Duration {
	wait := longWait
	for _, e := range w.endpoints {
		for _, due := range e.due {
			if due == nil || e.inHand >= w.cap || e.isClaiming {
				continue
			}
			at := *due
			if e.blocked.After(at) {
				at = e.blocked
			}
			if at.After(now) {
				wait = min(wait, at.Sub(now))
			}
		}
	}
	return wait
}

// forgetIdle drops endpoints without work, and tenants without endpoints.
func (w *worklist) forgetIdle(now time.Time) {
	for i := 0; i < len(w.tenants); i++ {
		t := w.tenants[i]
		t.endpoints = slices.DeleteFunc(t.endpoints, func(e *endpointWork) bool {
			idle := e.due[0] == nil && e.due[1] == nil && e.inHand == 0 && !e.blocked.After(now)
			if idle {
				delete(w.endpoints, e.id)
			}
			return idle
		})
		if len(t.endpoints) == 0 {
			w.tenants = slices.Delete(w.tenants, i, i+1)
			i--
		}
	}
}
