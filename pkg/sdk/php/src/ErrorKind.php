<?php

declare(strict_types=1);

namespace ApiPay;

/** The stage at which a call failed. */
enum ErrorKind: string
{
    /** An answer that is not 2xx; a redirect is one, since none is followed. */
    case Api = 'api';
    /** A connection that could not be made, or broke before the answer was complete. */
    case Connection = 'connection';
    /** The timeout or the deadline was reached. */
    case Timeout = 'timeout';
    /** A 2xx answer, a page or an event that cannot be read. */
    case Decode = 'decode';
    /** Refused before anything was sent. */
    case Argument = 'argument';
}
