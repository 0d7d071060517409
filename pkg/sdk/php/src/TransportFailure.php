<?php

declare(strict_types=1);

namespace ApiPay;

/** Why there is no answer, or why a call was refused: the previous exception of an ApiPayException. Its text is the SDK's own. */
final class TransportFailure extends \RuntimeException
{
    /** @internal */
    public function __construct(string $reason, public readonly bool $timedOut = false)
    {
        parent::__construct($reason);
        self::stripArguments($this);
    }

    /**
     * Takes the arguments out of a trace, which would be printed with the exception: they have keys and parameters. The
     * attribute SensitiveParameter does that from PHP 8.2 on, for what is marked.
     *
     * @internal
     */
    public static function stripArguments(\Exception $e): void
    {
        $frames = array_map(static function (array $frame): array {
            unset($frame['args']);
            return $frame;
        }, $e->getTrace());
        $trace = new \ReflectionProperty(\Exception::class, 'trace');
        $trace->setValue($e, $frames);
    }
}
