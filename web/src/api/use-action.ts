import { useMutation, type QueryKey } from "@tanstack/react-query";
import { explain } from "./client";
import { queryClient } from "./query-client";

/** Read again what is shown of these. */
export const refresh = (...queryKeys: QueryKey[]): Promise<unknown> =>
  Promise.all(queryKeys.map((queryKey) => queryClient.invalidateQueries({ queryKey })));

interface Options<Input, Output> {
  /** What the action changes: it is read again, also after a failure, which may have been one of the response only. */
  changes?: QueryKey[];
  /** Called once what has changed has been read, even if the component is not shown any more. */
  onDone?: (output: Output, input: Input) => unknown;
  onFailure?: (error: Error, input: Input) => void;
}

/**
 * Something that a person does at the service: `run` begins it, `busy` lasts until what it changes
 * has been read again, and `error` is the sentence of a failure until the next run. `input` is what
 * it runs with at present, for the one of many buttons that is busy.
 */
export function useAction<Input = void, Output = unknown>(
  act: (input: Input) => Promise<Output>,
  { changes = [], onDone, onFailure }: Options<Input, Output> = {},
) {
  const { mutate, reset, isPending, variables, error } = useMutation({
    mutationFn: act,
    async onSuccess(output, input) {
      await refresh(...changes);
      await onDone?.(output, input);
    },
    onError(failure, input) {
      // Not awaited: without a connection this takes long, and the person has to know of the failure.
      void refresh(...changes);
      onFailure?.(failure, input);
    },
  });
  return {
    run: mutate,
    reset,
    busy: isPending,
    input: isPending ? variables : undefined,
    error: error ? explain(error) : undefined,
  };
}
