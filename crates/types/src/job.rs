//! Which job a process belongs to, by what schedulers and launchers put into its environment.
//!
//! Pure: whoever asks brings the environment.

use crate::limits::LABEL_BYTES_MAX;

/// Names the job, before all others.
pub const JOB_VARIABLE: &str = "AZEKURA_JOB";
/// Where schedulers put the name of the job, tried in this order.
pub const SCHEDULER_VARIABLES: [&str; 6] =
    ["SLURM_JOB_ID", "PBS_JOBID", "PJM_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "JOB_ID"];
/// Where launchers of MPI programs put a name that all ranks of a run share, tried after these: a run without a scheduler.
pub const LAUNCHER_VARIABLES: [&str; 2] = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"];

/// A job of this name, or of one that begins with it and a hyphen, gives way to all others.
pub const BACKGROUND: &str = "background";
/// Who moves files between pools and tiers.
pub const TIER_MOVER: &str = "background-tier";

/// True for the name of a job that gives way to all others.
pub fn is_background(name: &str) -> bool {
    name.strip_prefix(BACKGROUND).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// The job's name; empty when nothing names one.
pub fn name(variable: &dyn Fn(&str) -> Option<String>) -> String {
    let places = [JOB_VARIABLE].into_iter().chain(SCHEDULER_VARIABLES).chain(LAUNCHER_VARIABLES);
    let found = places.filter_map(variable).find(|name| !name.is_empty());
    short(found.unwrap_or_default())
}

/// A name cut to the longest that jobs may have, [`LABEL_BYTES_MAX`] bytes.
pub fn short(mut name: String) -> String {
    if name.len() > LABEL_BYTES_MAX {
        let end = (0..=LABEL_BYTES_MAX).rev().find(|&at| name.is_char_boundary(at));
        name.truncate(end.unwrap_or(0));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(variables: &[(&str, &str)]) -> String {
        name(&|wanted| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn what_is_named_comes_before_what_is_found() {
        assert_eq!(named(&[]), "");
        assert_eq!(named(&[("PMIX_NAMESPACE", "run@1")]), "run@1");
        assert_eq!(named(&[("SLURM_JOB_ID", "17"), ("PMIX_NAMESPACE", "slurm.17.0")]), "17");
        assert_eq!(named(&[("SLURM_JOB_ID", "17"), ("AZEKURA_JOB", "mine")]), "mine");
        assert_eq!(named(&[("AZEKURA_JOB", ""), ("PBS_JOBID", "4.host")]), "4.host");
    }

    #[test]
    fn jobs_in_the_background_are_told_by_their_names() {
        assert!([BACKGROUND, TIER_MOVER, "background-17"].into_iter().all(is_background));
        let others = ["", "back", "backgrounds", "Background", "my-background"];
        assert!(!others.into_iter().any(is_background));
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let name = named(&[("AZEKURA_JOB", &"ü".repeat(100))]);
        assert_eq!(name, "ü".repeat(63));
    }
}
